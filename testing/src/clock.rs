//! A wall clock that a test sets, for one process: a library that is preloaded into it, and the file
//! that says how far ahead its clock is.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::native;

/// A clock; it lies in a directory, and is gone when that is.
#[derive(Clone, Debug)]
pub struct MovableClock {
    library: PathBuf,
    file: PathBuf,
}

impl MovableClock {
    /// A clock that shows what this machine's shows.
    pub fn new(dir: &Path) -> Self {
        let file = dir.join("clock");
        fs::write(&file, 0_i64.to_ne_bytes()).expect("written");
        let library = native::library("testing/src/movable_clock.c", dir);
        Self { library, file }
    }

    /// The process that is about to be started goes by this clock.
    pub fn give_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("MOVABLE_CLOCK", &self.file);
    }

    /// Sets it so many seconds ahead of this machine's, or behind.
    pub fn set(&self, seconds: i64) {
        // In place: the process has the file mapped.
        let file = File::options().write(true).open(&self.file);
        let mut file = file.expect("the clock");
        file.write_all(&seconds.to_ne_bytes()).expect("written");
    }
}
