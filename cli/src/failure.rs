//! Exit codes, and error messages for an operator.

use std::fmt::Display;
use std::io::{self, Write as _};

/// The command line cannot be understood (`EX_USAGE`).
pub const USAGE: u8 = 64;
/// No server can be reached, or it refuses (`EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;
/// The lock did not become available in time (`EX_TEMPFAIL`).
pub const NOT_ACQUIRED: u8 = 75;
/// The lock was lost before the command had ended.
pub const LOST: u8 = 76;
/// The command is there but cannot be run, as shells have it.
pub const NOT_RUNNABLE: u8 = 126;
/// The command is not there, as shells have it.
pub const NOT_FOUND: u8 = 127;
/// A signal's number is added to this if it ended the command, as in shells.
pub const SIGNALLED: u8 = 128;

/// Why the program ends, and with which exit code.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    /// What is wrong, and what to do about it.
    pub text: String,
}

impl Failure {
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }
}

/// Failures of this machine: no terminal, no process, no more files. That the reader of the output has enough, as `head`
/// does, is none.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(0, ""),
            _ => Self::new(1, error.to_string()),
        }
    }
}

/// Tells an operator. That nobody reads it, as after `grep -m1`, is no reason to end, as it would be for `eprintln!`.
pub fn tell(what: impl Display) {
    let _ = writeln!(io::stderr(), "fairlock: {what}");
}
