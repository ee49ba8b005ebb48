#![doc = include_str!("../README.md")]
//!
//! # Where is what
//!
//! `acquire` asks for a lock, `hold` is one that is held, `keeper` renews all of these. `caller` sends their commands, `scripts` has the
//! forms of these, `core` is what all callers share, `lines` are the connections, `server` where they lead. All is written once, for
//! tokio; [`Call::wait`] runs it on a thread of the package's own, where `keeper` is, too.

mod acquire;
mod caller;
mod core;
mod error;
mod hold;
mod info;
mod keeper;
mod lines;
mod locks;
mod options;
mod scripts;
mod server;

pub use error::{Cause, Error, Kind};
pub use info::Info;
pub use locks::{Call, Held, Locks};
pub use options::{Event, Hook, Options};
pub use server::Server;

/// What can fail here.
pub type Result<T> = std::result::Result<T, Error>;
