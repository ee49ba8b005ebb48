//! Signals: without the lock they end this program, later they are for the command.

use std::fs;
use std::io;

use nix::sys::signal::Signal;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook_tokio::SignalsInfo;

const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Signals as they come, each with who sent it: the kernel, as for a key of the terminal, or a process.
pub type Signals = SignalsInfo<WithOrigin>;

/// From here on the signals do not end this process. Signals that it ignores from its start, as under nohup, stay
/// ignored: here, and by the command.
pub fn listen() -> io::Result<Signals> {
    // A bit each.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let is_ignored = |signal: i32| ignored.is_some_and(|all| all >> (signal - 1) & 1 == 1);
    let heard = PASSED_ON.map(|signal| signal as i32).into_iter();
    SignalsInfo::new(heard.filter(|signal| !is_ignored(*signal)))
}
