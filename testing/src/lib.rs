//! What the tests of the module, of the companion and the benchmarks share. None of it is shipped.
//!
//! - [`Server`]: a real server for one test, with the module or without; [`cluster`]: several;
//! - [`Client`]: a connection for tests; [`Blocked`], [`Listener`], [`Wire`]: others;
//! - [`Program`]: another program for one test;
//! - [`commands`]: the module's commands, for tests that go over all of them;
//! - [`wait_until`]: tests wait for conditions, never for time;
//! - [`lua`]: the commands as scripts;
//! - [`redisson`]: its releases, its scripts, and real clients in a JVM;
//! - [`resp`]: the protocol, for tests that read what comes back themselves;
//! - [`dice`]: random numbers that a seed determines; [`forms`]: random commands;
//! - [`native`]: libraries in C that a test has built; [`paths`]: where things lie.

// A test fails by a panic.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::must_use_candidate
)]

pub mod client;
mod clock;
pub mod cluster;
pub mod commands;
pub mod dice;
pub mod forms;
pub mod lua;
pub mod native;
pub mod paths;
pub mod program;
pub mod redisson;
pub mod resp;
pub mod server;
mod wait;

pub use client::{Blocked, Client, Listener, Message, WAKE_UPS, Wire, show};
pub use dice::Dice;
pub use program::{Ended, Program, is_alive};
pub use server::{Launch, Server, follow, have_changed_roles, send_signal};
pub use wait::{give_up, wait_until};

/// The number in an environment variable, by which a test is made longer or is repeated.
pub fn setting(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a whole number"))
}

/// Whether tests go without what Java and Go are for (`make test`): the scripts of Redisson's releases, and Porcupine.
pub fn needs_only_rust() -> bool {
    std::env::var_os("ONLY_RUST").is_some()
}
