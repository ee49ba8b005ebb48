//! Redisson: its releases, the scripts of its fair lock, and real clients.
//!
//! - [`releases()`]: the releases, and where they are fetched to;
//! - [`Driver`]: a client, a JVM that carries out a test's commands;
//! - [`harvest`]: all scripts of a release, from what such a client sends; [`call`]: a call of one.

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

/// The words of a call of the newest release's script for a role, by its text, for an owner of a lock, with a lease, a
/// patience and the client's time.
pub fn call(role: &str, (lock, owner): (&str, &str), latch: &str, times: [u64; 3]) -> Vec<String> {
    let (script, keys) = (harvest::script(role), keys(lock, latch));
    let text = String::from_utf8(script.text.clone()).expect("a text");
    let keys = script.keys_of(&keys);
    let [lease, patience, now] = times.map(|time| time.to_string());
    let argument = |name: &&str| match *name {
        "lease" => lease.clone(),
        "owner" => owner.to_owned(),
        "wait" => patience.clone(),
        "now" => now.clone(),
        "publish" => "PUBLISH".to_owned(),
        // For how long an unlock that is sent twice is known.
        "latch" => "13500".to_owned(),
        _ => "0".to_owned(),
    };
    let mut words = vec!["EVAL".to_owned(), text, keys.len().to_string()];
    words.extend_from_slice(keys);
    let names = arguments(role).iter().take(script.arguments);
    words.extend(names.map(argument));
    words
}

/// The same, by its digest.
pub fn call_by_digest(role: &str, of: (&str, &str), latch: &str, times: [u64; 3]) -> Vec<String> {
    let mut words = call(role, of, latch, times);
    let by_digest = ["EVALSHA".to_owned(), harvest::script(role).sha1.clone()];
    words.splice(..2, by_digest);
    words
}
