//! The server's clocks.

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
