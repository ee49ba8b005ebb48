//! One question to the servers, and its answer on standard output.
//!
//! [`locks`]: all locks that are held. [`info`]: one lock. [`break_lock`]: frees a lock.

pub mod break_lock;
pub mod info;
pub mod locks;

use std::io::{self, Write as _};

/// Prints a line.
fn print(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}
