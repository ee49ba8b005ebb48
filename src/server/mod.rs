//! Safe wrappers of the server's module API: the only module with `unsafe`.
//!
//! The crate `redis-module` provides strings, configuration and the module's entry points. What its
//! safe API lacks (lists, sorted sets, blocking with time-out and disconnect, replication without
//! copies, the event loop) is wrapped here. [`api`] lists every function of the server that is used.
//! Each callback of the server runs under [`guard`]: a panic ends in a log line and an error reply,
//! never in the server.
//!
//! Everything here runs on the server's main thread; none of these types is `Send`.
//!
//! The map, from top to bottom: a file imports only from those below it (`make check`).
//!
//! What the server calls:
//! - [`events`]: the server's events, and which of them the module is told of; one timer;
//! - [`announce`]: what others are told of the module's own changes: replicas, WATCH, subscribers, listeners;
//! - [`filter`]: command filters, and which database a client has selected;
//! - [`command`]: registering commands, and their entry;
//! - [`block`]: blocking a client, whether its other end is gone, and whether a reply went out.
//!
//! What it is asked:
//! - [`needs`]: which of its commands the module needs;
//! - [`refusal`]: whether it refuses what needs memory, or all writes;
//! - [`user`]: what a connection's user may do;
//! - [`cluster`]: which server decides: slots, their migrations, pauses of writes;
//! - [`info`]: the module's section of INFO, and the server's own;
//! - [`scan`]: walks over keys;
//! - [`clock`]: the time.
//!
//! What these rest on:
//! - [`key`]: direct access to one key;
//! - [`guard`]: panics in callbacks;
//! - [`context`]: the context of one call;
//! - [`docs`]: what COMMAND DOCS and COMMAND INFO say;
//! - [`memory`]: the server's allocator and strings;
//! - [`api`]: the server's functions.

#![allow(unsafe_code)]

pub mod announce;
mod api;
pub mod block;
pub mod clock;
pub mod cluster;
pub mod command;
mod context;
pub mod docs;
pub mod events;
pub mod filter;
mod guard;
pub mod info;
mod key;
mod memory;
pub mod needs;
pub mod refusal;
pub mod scan;
pub mod user;

pub use api::is_new_enough;
pub use command::{Args, Command};
pub use context::{Ctx, Flags, INTERNAL_ERROR, Reply, in_cluster, is_replica, remember_server};
pub use guard::log_panics;
pub use key::{Access, Key, Kind};
pub use memory::{ServerAlloc, Str, decimal, is_aligned, string};

/// Applies the configuration file to the options that were registered. False if the server refuses
/// a value.
pub fn load_configuration(context: &redis_module::Context) -> bool {
    // SAFETY: the context is that of the module's initialisation, as LoadConfigs requires.
    unsafe { api::api!(LoadConfigs(context.ctx)) == 0 }
}
