//! Signals: without the lock they end this program, later they are for the command.

use std::fs;
use std::io;
use std::thread;

use nix::sys::signal::Signal;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The signals that are passed on.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// A signal that this process got.
#[derive(Clone, Copy, Debug)]
pub struct Caught {
    /// Which one.
    pub signal: Signal,
    /// Whether it was the kernel that sent it, as for a key of the terminal.
    pub from_kernel: bool,
}

/// Signals as they come.
#[derive(Debug)]
pub struct Signals {
    caught: UnboundedReceiver<Caught>,
}

impl Signals {
    /// From here on the signals do not end this process. Signals that it ignores from its start, as under nohup, stay
    /// ignored: here, and by the command.
    pub fn listen() -> io::Result<Self> {
        let ignored = fs::read_to_string("/proc/self/status")
            .ok()
            .and_then(|status| ignored(&status))
            .unwrap_or(0);
        let heard = PASSED_ON.map(|signal| signal as i32);
        let heard = heard
            .into_iter()
            .filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let mut signals = SignalsInfo::<WithOrigin>::new(heard)?;
        let (sender, caught) = unbounded_channel();
        thread::spawn(move || {
            for origin in signals.forever() {
                let Ok(signal) = Signal::try_from(origin.signal) else {
                    continue;
                };
                let from_kernel = origin.cause == Cause::Kernel;
                // The receiver is gone when the command has ended.
                let _ = sender.send(Caught {
                    signal,
                    from_kernel,
                });
            }
        });
        Ok(Self { caught })
    }

    /// The next one.
    pub async fn next(&mut self) -> Option<Caught> {
        self.caught.recv().await
    }

    /// One that has come already.
    pub fn already(&mut self) -> Option<Caught> {
        self.caught.try_recv().ok()
    }
}

/// The signals that a process ignores, a bit each, of its `/proc/.../status`.
fn ignored(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}
