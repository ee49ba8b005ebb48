//! The commands, one file each; `docs/commands` has their pages.
//!
//! A command reads its arguments before anything changes, and asks whether the caller may use the lock
//! ([`args::Call`]). One that changes a lock lets [`crate::waiting::step`] decide over the lock's keys, and
//! replies. One that only reads does so with [`crate::keyspace::view`]. Neither runs inside a step
//! (`waiting::require_rest`).
//!
//! To add an option: a field of [`args::Call`], read there in `read_option`; in the command's file its syntax, its name
//! in `OPTIONS`, and what it does; then the command's page (and README, if it shows the command), a test, and in
//! `tests/fuzz` a rule in `arguments.rs` and a form in `grammar.rs`. [`crate::keyspace`] says what else an option needs
//! that is stored with a hold.
//!
//! To add a command:
//!
//! - its file here, and a line in [`COMMANDS`]; if it changes a lock, its step is a method of `lock::Step`;
//! - a page in `docs/commands/`, linked in its `README.md`;
//! - a row in `testing/src/commands.rs`, from which tests of arguments, permissions and routing follow;
//! - tests in `tests/black_box/commands/`, listed in its `mod.rs`; its forms in `tests/fuzz/grammar.rs`, and its reply
//!   in `tests/fuzz/reply.rs`.
//!
//! The map, from top to bottom: a file imports only from those below it (`make check`).
//!
//! What scripts become:
//! - [`eval`]: runs a script natively.
//!
//! What changes a lock:
//! - [`acquire`]: takes it, or waits for it;
//! - [`release`]: gives it up;
//! - [`renew`]: renews its lease;
//! - [`cancel`]: takes a waiter out of its queue;
//! - [`break_lock`]: takes it from its holders.
//!
//! What shows locks:
//! - [`queue`]: the waiters of one;
//! - [`holders`]: its holders;
//! - [`locks`]: those of a database that this server tracks;
//! - [`info`]: one lock.
//!
//! For all:
//! - [`help`]: shows the commands;
//! - [`args`]: reads arguments.

pub mod acquire;
pub mod args;
pub mod break_lock;
pub mod cancel;
pub mod eval;
pub mod help;
pub mod holders;
pub mod info;
pub mod locks;
pub mod queue;
pub mod release;
pub mod renew;

use crate::server::command::Listed;

/// The commands that users type, in the order of HELP.
pub const COMMANDS: [Listed; 10] = [
    Listed::of::<acquire::Acquire>(),
    Listed::of::<release::Release>(),
    Listed::of::<renew::Renew>(),
    Listed::of::<cancel::Cancel>(),
    Listed::of::<break_lock::Break>(),
    Listed::of::<queue::Queue>(),
    Listed::of::<holders::Holders>(),
    Listed::of::<info::Info>(),
    Listed::of::<locks::Locks>(),
    Listed::of::<help::Help>(),
];

/// The commands that scripts become: no client sends them.
pub const SCRIPTS: [Listed; 2] = [
    Listed::of::<eval::Eval<false>>(),
    Listed::of::<eval::Eval<true>>(),
];
