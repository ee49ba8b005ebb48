//! Safe wrappers of the server's module API: the only module with `unsafe`.
//!
//! The crate `redis-module` provides strings, configuration and the module's entry points. What its
//! safe API lacks (lists, sorted sets, blocking with time-out and disconnect, replication without
//! copies, the event loop) is wrapped here. `api.h` lists every function of the server that is used.
//! Each callback of the server runs under [`guard`]: a panic ends in a log line and an error reply,
//! never in the server.
//!
//! Everything here runs on the server's main thread; none of these types is `Send`.

#![allow(unsafe_code)]

mod alloc;
pub mod announce;
mod api;
mod audience;
pub mod block;
pub mod clock;
pub mod cluster;
pub mod command;
mod context;
pub mod docs;
pub mod events;
pub mod filter;
pub mod info;
mod key;
pub mod migration;
mod needs;
pub mod nodes;
mod pause;
pub mod scan;
pub mod selected;
pub mod timer;
pub mod user;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

pub use alloc::{ServerAlloc, is_aligned};
pub use api::find_functions;
pub use command::{Args, Command};
pub use context::{Ctx, Flags, INTERNAL_ERROR, in_cluster, is_replica};
pub use key::{Access, Key, Kind};
pub use redis_module::RedisString as Str;

/// A server string with these bytes.
pub fn string(bytes: &[u8]) -> Str {
    Str::create_from_slice(null_mut(), bytes)
}

/// A server string with a number in decimal digits. The server's own conversion takes twice as long,
/// because it counts the digits first.
pub fn decimal(number: i64) -> Str {
    string(itoa::Buffer::new().format(number).as_bytes())
}

/// The same string of the server, not a copy.
pub fn share(string: &Str) -> Str {
    Str::new(None, string.inner)
}

/// Reads what does not change while the server runs, and clears the state of an earlier load of the
/// module: its code and state stay in memory when it is unloaded.
pub fn start_afresh(ctx: &Ctx) {
    context::remember_server(ctx);
    audience::start_afresh(ctx);
    nodes::start_afresh();
    selected::start_afresh();
}

/// Writes panics to the server's log, with their location and without a backtrace, even if `RUST_BACKTRACE` is
/// set. To name the functions in a backtrace, the C library allocates memory that is freed from here, and a
/// server with its own allocator may not allow that. Debian's Valkey 8.1 crashed there.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let text = format!("fairlock: {panic}").replace('\n', " ");
        Ctx::new(null_mut()).log_warning(&text);
    }));
}

/// Runs a callback of the server; a panic in it is logged and becomes `None`.
fn guard<T>(what: &str, body: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(body));
    if result.is_err() {
        // Without the callback's own context: it may be the cause of the panic.
        let no_call = Ctx::new(null_mut());
        no_call.log_warning(&format!(
            "fairlock: panic in {what}; please report this as a bug"
        ));
    }
    result.ok()
}

/// Applies the configuration file to the options that were registered. False if the server refuses
/// a value.
pub fn load_configuration(context: &redis_module::Context) -> bool {
    // SAFETY: the context is that of the module's initialisation, as LoadConfigs requires.
    unsafe { api::api!(LoadConfigs(context.ctx)) == 0 }
}
