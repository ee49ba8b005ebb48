//! One question to the servers, and its answer on standard output.
//!
//! [`locks`]: all locks that are held. [`info`]: one lock, or the servers themselves.
//! [`break_lock`]: frees a lock.

pub mod break_lock;
pub mod info;
pub mod locks;

use std::io::{self, Write as _};

use serde_json::Value;

use crate::failure::Failure;

/// Prints a line, of JSON if that is wanted. False if the reader is gone, as with `fairlock locks | head`.
fn print(
    json: bool,
    object: impl FnOnce() -> Value,
    line: impl FnOnce() -> String,
) -> Result<bool, Failure> {
    let text = if json { object().to_string() } else { line() };
    match writeln!(io::stdout().lock(), "{text}") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}
