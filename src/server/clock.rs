//! The server's clocks, and one timer of its event loop.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::api::{api, raw};
use super::context::Ctx;
use super::guard::guard;

/// Microseconds since the Unix epoch, from the clock that the server uses for the expiry of keys.
pub fn wall_micros() -> u64 {
    micros(libc::CLOCK_REALTIME)
}

/// Microseconds since some moment, from a clock that is never set.
pub fn steady_micros() -> u64 {
    micros(libc::CLOCK_MONOTONIC)
}

fn micros(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result; both clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = time.tv_sec.max(0).cast_unsigned();
    let nanos = time.tv_nsec.max(0).cast_unsigned();
    seconds
        .saturating_mul(1_000_000)
        .saturating_add(nanos / 1000)
}

/// A timer that has not fired yet.
pub struct Timer(raw::RedisModuleTimerID);

/// What a timer does when it fires.
pub trait Alarm {
    /// Runs on the main thread, in database 0, outside any command.
    fn ring(ctx: &Ctx);
}

/// Starts a timer that fires once, after `delay` milliseconds.
pub fn start_timer<A: Alarm>(ctx: &Ctx, delay: u64) -> Timer {
    let delay = i64::try_from(delay).unwrap_or(i64::MAX);
    // SAFETY: the callback has the signature that the server expects; no data is passed.
    let id = unsafe { api!(CreateTimer(ctx.raw, delay, Some(ring::<A>), null_mut())) };
    Timer(id)
}

pub fn stop_timer(ctx: &Ctx, timer: &Timer) {
    // SAFETY: an id that is not known any more is refused by the server.
    unsafe { api!(StopTimer(ctx.raw, timer.0, null_mut())) };
}

extern "C" fn ring<A: Alarm>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    guard("a timer", || A::ring(&Ctx::new(ctx)));
}
