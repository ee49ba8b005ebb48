//! Stands in for the command until it is started: this program again, which asks the kernel to send it SIGTERM when its
//! parent dies, and then becomes the command. So a command does not go on for long without the lock, even if `fairlock`
//! is killed by SIGKILL.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::{Command, ExitCode};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::failure::{NOT_FOUND, NOT_RUNNABLE, tell};
use crate::text::word;

/// This program, even if its file has been replaced or removed.
pub const PROGRAM: &str = "/proc/self/exe";
/// Not for people: what follows are the parent's process number, the command, its arguments.
const FLAG: &str = "--stand-in-for-command";

/// The arguments that make this program stand in for a command.
pub fn arguments(command: &[OsString]) -> impl Iterator<Item = OsString> {
    let parent = std::process::id().to_string();
    let first = [OsString::from(FLAG), OsString::from(parent)];
    first.into_iter().chain(command.iter().cloned())
}

/// If this process is a stand-in, becomes the command; the exit code if it cannot be run.
pub fn run() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next().as_deref() != Some(OsStr::new(FLAG)) {
        return None;
    }
    let parent = args.next().unwrap_or_default();
    let command = args.next().unwrap_or_default();
    // Without it the command still runs under the lock.
    let _ = set_pdeathsig(Signal::SIGTERM);
    if parent != *parent_id().to_string() {
        // The parent died before the request.
        return Some(ExitCode::FAILURE);
    }
    let error = Command::new(&command).args(args).exec();
    tell(format_args!("{}: {error}", word(command.as_bytes())));
    Some(ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUNNABLE,
    }))
}
