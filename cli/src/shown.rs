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
fn known(millis: i64) -> Option<i64> {
    (millis >= 0).then_some(millis)
}

/// How many holders are tolerated; `None` is any number.
fn limited(limit: i64) -> Option<i64> {
    (limit > 0).then_some(limit)
}

fn or(what: Option<impl ToString>, none: &str) -> String {
    what.map_or_else(|| none.to_owned(), |what| what.to_string())
}

/// A lock on a line.
pub fn line(lock: &Lock, node: &str) -> String {
    let shared = if lock.is_shared() {
        let limit = or(limited(lock.limit), "none");
        format!(" holders={} limit={limit}", lock.holders)
    } else {
        String::new()
    };
    let name = |owner: &Option<Vec<u8>>| or(owner.as_deref().map(word), "-");
    format!(
        "{} holder={}{shared} held={} lease={} waiting={} next={} token={} session={} node={node}",
        word(&lock.name),
        name(&lock.owner),
        millis(lock.held),
        or(known(lock.lease).map(millis), "none"),
        lock.waiting,
        name(&lock.next),
        or(lock.token, "-"),
        if lock.session { "yes" } else { "no" },
    )
}
