//! One timer of the event loop.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::api::{api, raw};
use super::context::Ctx;
use super::guard::guard;

/// A timer that has not fired yet.
#[derive(Debug)]
pub struct Timer(raw::RedisModuleTimerID);

/// What a timer does when it fires.
pub trait Alarm {
    /// Runs on the main thread, in database 0, outside any command.
    fn ring(ctx: &Ctx);
}

/// Starts a timer that fires once, after `delay` milliseconds.
pub fn start<A: Alarm>(ctx: &Ctx, delay: u64) -> Timer {
    let delay = i64::try_from(delay).unwrap_or(i64::MAX);
    // SAFETY: the callback has the signature that the server expects; no data is passed.
    let id = unsafe { api!(CreateTimer(ctx.raw, delay, Some(ring::<A>), null_mut())) };
    Timer(id)
}

/// Stops a timer before it fires.
pub fn stop(ctx: &Ctx, timer: &Timer) {
    // SAFETY: an id that is not known any more is refused by the server.
    unsafe { api!(StopTimer(ctx.raw, timer.0, null_mut())) };
}

extern "C" fn ring<A: Alarm>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    guard("a timer", || A::ring(&Ctx::new(ctx)));
}
