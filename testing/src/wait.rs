//! Waiting for conditions: tests never wait for time.

use std::thread;
use std::time::{Duration, Instant};

use crate::server::{foreign_module, wrapper};

/// Longest a condition may take before the test is given up. Only ever reached on failure. A server
/// under a wrapper, or an emulated one, is slow.
pub fn give_up() -> Duration {
    let is_slow = !wrapper().is_empty() || foreign_module().is_some();
    Duration::from_secs(if is_slow { 600 } else { 180 })
}

/// Waits until a condition holds.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let (start, longest) = (Instant::now(), give_up());
    while !condition() {
        assert!(start.elapsed() < longest, "still not so: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
