//! The command's process.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::args::ExecArgs;
use crate::failure::{Failure, NOT_RUNNABLE, SIGNALLED};

use super::signals::Caught;
use super::stand_in;

/// A command under way.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pid: Pid,
    /// Whether it has a process group of its own, so that signals reach all that it starts. With a terminal it has
    /// none: Ctrl-C, Ctrl-Z and reading from the terminal are for the group that the shell has put in the foreground.
    own_group: bool,
    /// When the rest of the group is killed.
    until: Instant,
}

impl Running {
    /// Starts the command.
    pub fn start(args: &ExecArgs, owner: &[u8], token: i64) -> Result<Self, Failure> {
        let has_terminal = File::open("/dev/tty").is_ok();
        let mut command = Command::new(stand_in::PROGRAM);
        command
            .arg0("fairlock")
            .args(stand_in::arguments(&args.command))
            .env("FAIRLOCK_KEY", &args.key)
            .env("FAIRLOCK_OWNER", OsStr::from_bytes(owner))
            .env("FAIRLOCK_TOKEN", token.to_string());
        if !has_terminal {
            command.process_group(0);
        }
        let child = command.spawn().map_err(|error| {
            let text = format!("cannot start a process for the command: {error}");
            Failure::new(NOT_RUNNABLE, text)
        })?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.ok_or_else(|| Failure::new(NOT_RUNNABLE, "the command has no process"))?;
        Ok(Self {
            child,
            pid: Pid::from_raw(pid),
            own_group: !has_terminal,
            until: Instant::now(),
        })
    }

    /// Waits until the command has ended. Its children may go on.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends a signal to the command, and to its children where they can be reached.
    pub fn signal(&self, signal: Signal) {
        // It has not been waited for, so its number is not in use by another process. It may have ended.
        let _ = if self.own_group {
            killpg(self.pid, signal)
        } else {
            kill(self.pid, signal)
        };
    }

    /// Passes a signal on, unless the command got it already: what the terminal sends (Ctrl-C)
    /// goes to the whole foreground group.
    pub fn pass_on(&self, caught: Caught) {
        if self.own_group || !caught.from_kernel {
            self.signal(caught.signal);
        }
    }

    /// Until when the command and its children may take to end.
    pub fn give_until(&mut self, until: Instant) {
        self.until = until;
    }

    /// After the command itself has ended because the lock was lost: waits for the rest of its
    /// group, and ends it when the time is up.
    pub async fn end_what_is_left(&self) {
        if !self.own_group {
            return;
        }
        while killpg(self.pid, None).is_ok() {
            if Instant::now() >= self.until {
                let _ = killpg(self.pid, Signal::SIGKILL);
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The command's status as a shell shows it.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let signalled = || status.signal().and_then(|signal| u8::try_from(signal).ok());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or_else(|| signalled().map(|signal| SIGNALLED.saturating_add(signal)))
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_shown_as_shells_do() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
    }
}
