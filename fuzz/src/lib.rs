//! Fuzz targets: functions of any bytes that panic if a promise is broken.
//!
//! [`arguments`] parses commands, [`scripts`] recognises Redisson's scripts, [`rules`] takes random
//! steps on a lock in memory. `make fuzz-coverage` has libFuzzer look for bytes that reach new code;
//! `tests/replay.rs` runs what it has found, and some random bytes, with all other tests.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a panic is what a fuzzer looks for"
)]

pub mod arguments;
#[cfg(not(test))]
pub mod rules;
pub mod scripts;

/// The lock, with the tests of its promises. Unit tests of this crate would be those of the lock once more.
#[cfg(not(test))]
#[allow(dead_code, reason = "the property tests use the rest")]
mod lock;
