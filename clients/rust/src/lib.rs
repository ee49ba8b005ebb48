#![doc = include_str!("../README.md")]
//!
//! # Where is what
//!
//! `ask` has the acquisitions, `keep` what is held, `core` what both share; `route` says where connections go, `node` has
//! those to one server, `watch` notices that it is not the master any more, and `scripts` has
//! the module's commands for servers without it. All is written once, for tokio. [`Locks`] runs it on a thread of its own, as the blocking half of other clients does, so that waits
//! can be ended and leases renewed; `aio` runs it where it is called.

#[cfg(feature = "tokio")]
pub mod aio;
mod ask;
mod blocking;
mod core;
mod error;
mod info;
mod keep;
mod line;
mod node;
mod options;
mod route;
mod scripts;
mod watch;

pub use blocking::{Held, Lock, Locks};
pub use error::{Cause, Error, Failure};
pub use info::Info;
pub use options::{Event, Hook, Hooks, Options};
pub use scripts::Module;

/// What can fail here.
pub type Result<T> = std::result::Result<T, Error>;
