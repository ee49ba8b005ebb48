//! A lock as a line for people, or as an object of JSON.

use serde_json::{Value, json};

use crate::lock::Lock;
use crate::text::{escape, millis, word};

/// A lock, and where it is, as JSON. Of several holders `owner` is the first. What is unknown, or has no end, is null.
pub fn object(lock: &Lock, node: &str) -> Value {
    json!({
        "name": escape(&lock.name),
        "node": node,
        "owner": lock.owner.as_deref().map(escape),
        "holds": lock.holds,
        "holders": lock.holders,
        "limit": limited(lock.limit),
        "lease_ms": known(lock.lease),
        "token": lock.token,
        "session": lock.session,
        "waiting": lock.waiting,
        "next": lock.next.as_deref().map(escape),
        "held_ms": known(lock.held),
    })
}

/// `None` for numbers below 0: unknown, or without an end.
pub fn known(millis: i64) -> Option<i64> {
    (millis >= 0).then_some(millis)
}

/// How many holders are tolerated; 0 is any number.
pub fn limited(limit: i64) -> Option<i64> {
    (limit > 0).then_some(limit)
}

pub fn lease(left: i64) -> String {
    known(left).map_or_else(|| "none".to_owned(), millis)
}

pub fn or_dash(what: Option<impl ToString>) -> String {
    what.map_or_else(|| "-".to_owned(), |what| what.to_string())
}

pub fn name(owner: Option<&[u8]>) -> String {
    or_dash(owner.map(word))
}

pub fn yes(truth: bool) -> &'static str {
    if truth { "yes" } else { "no" }
}

pub fn line(lock: &Lock, node: &str) -> String {
    let shared = match (lock.is_shared(), lock.limit) {
        (false, _) => String::new(),
        (true, 0) => format!(" holders={} limit=none", lock.holders),
        (true, limit) => format!(" holders={} limit={limit}", lock.holders),
    };
    format!(
        "{} holder={}{shared} held={} lease={} waiting={} next={} token={} session={} node={node}",
        word(&lock.name),
        name(lock.owner.as_deref()),
        millis(lock.held),
        lease(lock.lease),
        lock.waiting,
        name(lock.next.as_deref()),
        or_dash(lock.token),
        yes(lock.session),
    )
}

/// Whether a lock's name, holder or next waiter contains a text, which is in lower case.
pub fn matches(lock: &Lock, filter: &str) -> bool {
    let texts = [Some(&lock.name), lock.owner.as_ref(), lock.next.as_ref()];
    let mut texts = texts.into_iter().flatten();
    filter.is_empty() || texts.any(|text| escape(text).to_lowercase().contains(filter))
}
