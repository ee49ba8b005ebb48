//! Redisson: its releases, the scripts of its fair lock, and real clients.
//!
//! - [`releases()`]: the releases, and where they are fetched to;
//! - [`Driver`]: a client, a JVM that carries out a test's commands;
//! - [`harvest`]: all scripts of a release, from what such a client sends.

mod driver;
pub mod harvest;
mod releases;

use crate::lua;

pub use driver::{Answer, Driver};
pub use releases::{NEWEST, OLD, each_release, folder, releases};

/// What the scripts of a role take as arguments, in their order. Not all take the last: older ones lack some, and the
/// error is for those that are not re-entrant.
pub fn arguments(role: &str) -> &'static [&'static str] {
    match role {
        "try-lock" => &["lease", "owner", "now", "wait", "error"],
        "lock" => &["lease", "owner", "wait", "now", "error"],
        "unlock" => &["message", "lease", "owner", "now", "publish", "latch"],
        "force-unlock" => &["message", "now", "publish"],
        "leave" => &["owner", "wait"],
        _ => &["lease", "owner"],
    }
}

/// What scripts call a lock by, in their order: the lock, its queue, its scores, its channel, and the latch of one
/// unlocking.
pub fn keys(lock: &str, latch: &str) -> [String; 5] {
    let [lock, queue, scores, _] = lua::keys(lock);
    let beside = |name: &str| queue.replace("lock_queue", name);
    let channel = beside("lock__channel");
    let latch = format!("{}:{latch}", beside("unlock_latch"));
    [lock, queue, scores, channel, latch]
}
