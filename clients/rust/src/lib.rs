#![doc = include_str!("../README.md")]
//!
//! # Where is what
//!
//! `protocol` says what to send and how long to wait, `acquire` and `hold` carry it out, `core` is what they share, `sending`
//! the way of a command, `lines` are the connections, `scripts` has the commands for servers without the module. All is written once, for tokio;
//! [`Locks`] runs it on a thread of its own, [`aio::Locks`] where it is called.

mod acquire;
mod core;
mod error;
mod hold;
mod info;
mod lines;
pub mod locks;
mod options;
mod protocol;
mod scripts;
mod sending;

pub use error::{Cause, Error, Kind};
pub use info::Info;
pub use lines::Server;
pub use locks::Threads;
pub use options::{Event, Hook, Hooks, Options};
pub use scripts::Module;

/// Takes locks for threads; see [`locks::Locks`].
pub type Locks = locks::Locks<Threads>;
/// A lock to be acquired by a thread; see [`locks::Lock`].
pub type Lock = locks::Lock<Threads>;
/// A lock that a thread holds; see [`locks::Held`].
pub type Held = locks::Held<Threads>;

/// Locks for tokio.
pub mod aio {
    pub use crate::locks::Tasks;

    /// Takes locks for tasks; see [`locks::Locks`](crate::locks::Locks).
    pub type Locks = crate::locks::Locks<Tasks>;
    /// A lock to be acquired by a task; see [`locks::Lock`](crate::locks::Lock).
    pub type Lock = crate::locks::Lock<Tasks>;
    /// A lock that a task holds; see [`locks::Held`](crate::locks::Held).
    pub type Held = crate::locks::Held<Tasks>;
}

/// What can fail here.
pub type Result<T> = std::result::Result<T, Error>;
