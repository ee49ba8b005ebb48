//! Signals: without the lock they end this program, later they are for the command.

use std::fs;
use std::io;

use futures_util::StreamExt as _;
use nix::sys::signal::Signal;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Origin;
use signal_hook_tokio::SignalsInfo;

/// The signals that are passed on.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Signals as they come.
pub struct Signals(SignalsInfo<WithOrigin>);

impl Signals {
    /// From here on the signals do not end this process. Signals that it ignores from its start, as under nohup, stay
    /// ignored: here, and by the command.
    pub fn listen() -> io::Result<Self> {
        let ignored = fs::read_to_string("/proc/self/status")
            .ok()
            .and_then(|status| ignored(&status))
            .unwrap_or(0);
        let heard = PASSED_ON.map(|signal| signal as i32).into_iter();
        let heard = heard.filter(|signal| ignored >> (signal - 1) & 1 == 0);
        Ok(Self(SignalsInfo::new(heard)?))
    }

    /// The next one, and whether it was the kernel that sent it, as for a key of the terminal.
    pub async fn next(&mut self) -> Option<Origin> {
        self.0.next().await
    }
}

/// The signals that a process ignores, a bit each, of its `/proc/.../status`.
fn ignored(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}
