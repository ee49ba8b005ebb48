//! Callbacks of the server: panics in them end in its log, and no further; debug builds end the server where one does
//! not come on its main thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use super::context::{Ctx, INTERNAL_ERROR, Reply};

/// Writes panics to the server's log, with their location and without a backtrace, even if `RUST_BACKTRACE` is
/// set. To name the functions in a backtrace, the C library allocates memory that is freed from here, and a
/// server with its own allocator may not allow that. Debian's Valkey 8.1 crashed there.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let text = format!("fairlock: {panic}").replace('\n', " ");
        Ctx::new(null_mut()).log_warning(&text);
    }));
}

#[cfg(debug_assertions)]
thread_local! {
    static IS_MAIN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// For callbacks that can end before they are guarded. By the sources of Redis 8.6.3 and Valkey 9.1.2 all come on the
/// server's main thread but two: INFO, for the report of a crash, comes on the thread that crashed (see `info.rs`); and
/// a command that is to tell its keys (`getkeys-api`) is called on I/O threads, so no command has that flag.
///
/// I/O threads free a command's arguments, but only those that are not retained, and write replies, which are copies.
pub(super) fn require_main_thread() {
    #[cfg(debug_assertions)]
    if !IS_MAIN.get() {
        eprintln!("fairlock: a callback on a thread that is not the server's main one");
        std::process::abort();
    }
}

/// Runs a callback of the server; a panic in it is logged and becomes `None`.
pub(super) fn guard<T>(what: &str, body: impl FnOnce() -> T) -> Option<T> {
    require_main_thread();
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

/// As [`guard`], of a callback that makes a reply: after a panic it is an error, since a client without a reply would
/// wait for ever.
pub(super) fn guard_reply(what: &str, body: impl FnOnce() -> Reply) -> Reply {
    guard(what, body).unwrap_or_else(|| Reply::Error(INTERNAL_ERROR.to_owned()))
}

impl Ctx {
    /// Runs `body` with the context of the module's initialisation, which `redis-module` has wrapped.
    /// `None` if the body panics.
    pub fn of<T>(context: &redis_module::Context, body: impl FnOnce(&Self) -> T) -> Option<T> {
        // The server loads modules on its main thread.
        #[cfg(debug_assertions)]
        IS_MAIN.set(true);
        guard("the module's initialisation", || {
            body(&Self::new(context.ctx))
        })
    }
}
