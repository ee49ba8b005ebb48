//! The command's process.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use signal_hook::low_level::siginfo::{Cause, Origin};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::time::{Instant, sleep};

use crate::args::ExecArgs;
use crate::failure::{Failure, NOT_RUNNABLE, SIGNALLED};

use super::stand_in;

pub struct Running {
    pid: Pid,
    ended: Stream,
    /// Whether it has a process group of its own, so that signals reach all that it starts. With a terminal it has
    /// none: Ctrl-C, Ctrl-Z and reading from the terminal are for the group that the shell has put in the foreground.
    own_group: bool,
}

impl Running {
    pub fn start(args: &ExecArgs, owner: &[u8], token: i64) -> Result<Self, Failure> {
        let has_terminal = File::open("/dev/tty").is_ok();
        // Whoever has started this program may have blocked it.
        let _ = SigSet::from(Signal::SIGCHLD).thread_unblock();
        let ended = signal(SignalKind::child())?;
        // What the command leaves behind becomes a child of this process, so that it can be found if the lock is lost.
        // On a kernel that refuses, the command still runs under the lock.
        let _ = set_child_subreaper(true);
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
        let pid = i32::try_from(child.id())
            .map_err(|_| Failure::new(NOT_RUNNABLE, "the command has no process"))?;
        Ok(Self {
            pid: Pid::from_raw(pid),
            ended,
            own_group: !has_terminal,
        })
    }

    /// Waits until the command has ended. Its children may go on; those that end are not left as zombies.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.pid => {
                    return Ok(ExitStatus::from_raw((code & 0xff) << 8));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.pid => {
                    return Ok(ExitStatus::from_raw(signal as i32));
                }
                Ok(WaitStatus::StillAlive) => {
                    self.ended.recv().await;
                }
                Ok(_) | Err(Errno::EINTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Passes a signal on, unless the command got it already: what the terminal sends (Ctrl-C)
    /// goes to the whole foreground group.
    pub fn pass_on(&self, caught: &Origin) {
        // It has not been waited for, so its number is not in use by another process. It may have ended.
        let _ = Signal::try_from(caught.signal).and_then(|signal| match self.own_group {
            true => killpg(self.pid, signal),
            false if caught.cause == Cause::Kernel => Ok(()),
            false => kill(self.pid, signal),
        });
    }
}

/// Ends the command and all that it has started: by SIGTERM, and by SIGKILL at that time. Nothing is left when it is
/// over. Someone else waits for the command itself.
pub async fn end_all(until: Instant) {
    let mut told = HashSet::new();
    loop {
        let left = descendants();
        if left.is_empty() {
            return;
        }
        for pid in left {
            // It may have ended by itself.
            let _ = if Instant::now() >= until {
                kill(pid, Signal::SIGKILL)
            } else if told.insert(pid) {
                kill(pid, Signal::SIGTERM)
            } else {
                Ok(())
            };
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// The processes that are children of this one, their children, and so on, but for those that have ended.
fn descendants() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes: Vec<_> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, parent(&stat)?))
        })
        .collect();
    let mut found = vec![Pid::this().as_raw()];
    let mut next = 0;
    while let Some(&of) = found.get(next) {
        let children = processes.iter().filter(|(_, parent)| *parent == of);
        found.extend(children.map(|(pid, _)| pid));
        next += 1;
    }
    found.into_iter().skip(1).map(Pid::from_raw).collect()
}

/// The parent that a process's `/proc/.../stat` names; `None` if the process has ended.
fn parent(stat: &str) -> Option<i32> {
    // The name is in brackets and can have anything in it.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(parent)
}

/// The command's status as a shell shows it.
pub fn exit_code(status: ExitStatus) -> u8 {
    let signalled = || status.signal().and_then(|signal| u8::try_from(signal).ok());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or_else(|| signalled().map(|signal| SIGNALLED.saturating_add(signal)))
        .unwrap_or(1)
}

/// The exit code of a program that a signal has ended.
pub fn of_signal(signal: i32) -> u8 {
    exit_code(ExitStatus::from_raw(signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_not_ended_has_a_parent() {
        assert_eq!(parent("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 (a) Z 7 12 12 0"), None);
    }
}
