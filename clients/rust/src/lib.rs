#![doc = include_str!("../README.md")]
//!
//! # Where is what
//!
//! `core` has the connections and the acquisitions, `keep` what is held, `route` where connections go. All is written
//! once, for tokio. [`Locks`] runs it on a thread of its own, as the blocking half of other clients does, so that waits
//! can be ended and leases renewed; `aio` runs it where it is called.

#[cfg(feature = "tokio")]
pub mod aio;
mod blocking;
mod core;
mod error;
mod fake;
mod keep;
mod line;
mod options;
mod route;
#[cfg(feature = "testing")]
pub mod testing;

pub use blocking::{Held, Lock, Locks};
pub use error::{Cause, Error, Failure};
pub use options::{Event, Hook, Hooks, Options};

/// What can fail here.
pub type Result<T> = std::result::Result<T, Error>;
