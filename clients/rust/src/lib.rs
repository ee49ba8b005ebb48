#![doc = include_str!("../README.md")]
//!
//! # Where is what
//!
//! `protocol` says what to send and how long to wait, `acquire` and `hold` carry it out, `core` is what they share, `terms`
//! sends their commands, `scripts` has their forms, `lines` are the connections, `server` where they lead. All is written once, for
//! tokio; [`Locks`] runs it on a thread of its own, [`aio::Locks`] where it is called.

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
mod server;
mod terms;

pub use error::{Cause, Error, Kind};
pub use info::Info;
pub use options::{Event, Hook, Module, Options};
pub use server::Server;

/// Takes locks for threads; see [`locks::Locks`].
pub type Locks = locks::Locks<locks::Threads>;
/// A lock that a thread holds; see [`locks::Held`].
pub type Held = locks::Held<locks::Threads>;

/// Locks for tokio.
pub mod aio {
    use crate::locks::{self, Tasks};

    /// Takes locks for tasks; see [`locks::Locks`].
    pub type Locks = locks::Locks<Tasks>;
    /// A lock that a task holds; see [`locks::Held`].
    pub type Held = locks::Held<Tasks>;
}

/// What can fail here.
pub type Result<T> = std::result::Result<T, Error>;
