//! The commands, one file each: what it is for, its arguments, its reply.
//!
//! A command that changes a lock parses everything before anything changes, asks whether the caller may
//! (`args::permit`), lets [`crate::waiting::step`] decide over the lock's keys, and replies. A command that only
//! reads refuses to run inside a step (`waiting::require_rest`), parses, asks for permission, and reads with
//! [`crate::keyspace::view`].
//!
//! To add a command:
//!
//! - its file here, and a line in this one, in `lib.rs` and in [`help`]; if it changes a lock, its step is a method
//!   of `lock::Step`;
//! - a page in `docs/commands/`, linked in `docs/commands/README.md` and `docs/README.md`, a row in the table of the
//!   README, a line in the CHANGELOG; `docs/operations.md` and `SECURITY.md` say which commands only read;
//! - tests in `tests/black_box/commands/`, listed in its `mod.rs`, and its reply in `tests/fuzz/reply.rs`. Other
//!   tests have lists of commands. Each fails until the new one is added, or left out on purpose
//!   (`Client::assert_calls_all_but`).

pub mod acquire;
pub mod args;
pub mod break_lock;
pub mod cancel;
mod cursor;
pub mod eval;
pub mod help;
pub mod holders;
pub mod info;
mod listing;
pub mod locks;
pub mod queue;
pub mod release;
pub mod renew;
