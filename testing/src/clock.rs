//! A wall clock that a test sets, for one process: a library that is preloaded into it, and the file
//! that says how far ahead its clock is.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::native;

/// A clock. It is a file in a directory, and goes with it.
#[derive(Clone, Debug)]
pub struct MovableClock {
    library: PathBuf,
    file: PathBuf,
}

impl MovableClock {
    /// A clock that shows this machine's time.
    pub fn new(dir: &Path) -> Self {
        let file = dir.join("clock");
        fs::write(&file, 0_i64.to_ne_bytes()).expect("written");
        let library = native::library("testing/src/movable_clock.c", dir);
        Self { library, file }
    }

    /// Makes a process that is about to start use this clock.
    pub fn give_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("MOVABLE_CLOCK", &self.file);
    }

    /// Sets it a number of seconds ahead of this machine's, or behind.
    pub fn set(&self, seconds: i64) {
        // In place: the process has the file mapped.
        let file = File::options().write(true).open(&self.file);
        let mut file = file.expect("the clock");
        file.write_all(&seconds.to_ne_bytes()).expect("written");
    }
}
