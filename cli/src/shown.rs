//! A lock as a line for people, or as an object of JSON.

use serde::Serialize;

use crate::lock::Lock;
use crate::text::{escape, millis, word};

/// A lock, and where it is.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    name: String,
    node: String,
    /// The holder; the first, where there are several.
    owner: Option<String>,
    holds: i64,
    /// Number of holders.
    holders: i64,
    /// Null if there is none.
    limit: Option<i64>,
    /// Milliseconds; null if it has no end.
    lease_ms: Option<i64>,
    /// The last one, if one is known.
    token: Option<i64>,
    session: bool,
    /// Number of waiters.
    waiting: i64,
    /// The head of the queue.
    next: Option<String>,
    /// Milliseconds; null if unknown.
    held_ms: Option<i64>,
}

impl Shown {
    /// A lock of this server.
    #[must_use]
    pub fn new(lock: &Lock, node: &str) -> Self {
        Self {
            name: escape(&lock.name),
            node: node.to_owned(),
            owner: lock.owner.as_deref().map(escape),
            holds: lock.holds,
            holders: lock.holders,
            limit: limited(lock.limit),
            lease_ms: known(lock.lease),
            token: lock.token,
            session: lock.session,
            waiting: lock.waiting,
            next: lock.next.as_deref().map(escape),
            held_ms: known(lock.held),
        }
    }
}

/// `None` for numbers below 0: unknown, or without an end.
#[must_use]
pub fn known(millis: i64) -> Option<i64> {
    (millis >= 0).then_some(millis)
}

/// How many holders are tolerated; 0 is any number.
#[must_use]
pub fn limited(limit: i64) -> Option<i64> {
    (limit > 0).then_some(limit)
}

/// A lease as people read it.
#[must_use]
pub fn lease(left: i64) -> String {
    known(left).map_or_else(|| "none".to_owned(), millis)
}

/// A token as people read it.
#[must_use]
pub fn token(token: Option<i64>) -> String {
    token.map_or_else(|| "-".to_owned(), |token| token.to_string())
}

/// Yes or no.
#[must_use]
pub fn yes(truth: bool) -> &'static str {
    if truth { "yes" } else { "no" }
}

/// A lock on a line.
#[must_use]
pub fn line(lock: &Lock, node: &str) -> String {
    let name = |bytes: &Option<Vec<u8>>| bytes.as_deref().map_or_else(|| "-".to_owned(), word);
    let shared = match (lock.is_shared(), lock.limit) {
        (false, _) => String::new(),
        (true, 0) => format!(" holders={} limit=none", lock.holders),
        (true, limit) => format!(" holders={} limit={limit}", lock.holders),
    };
    format!(
        "{} holder={}{shared} held={} lease={} waiting={} next={} token={} session={} node={node}",
        word(&lock.name),
        name(&lock.owner),
        millis(lock.held),
        lease(lock.lease),
        lock.waiting,
        name(&lock.next),
        token(lock.token),
        yes(lock.session),
    )
}

/// Whether a lock's name, holder or next waiter contains a text, which is in lower case.
#[must_use]
pub fn matches(lock: &Lock, filter: &str) -> bool {
    let texts = [Some(&lock.name), lock.owner.as_ref(), lock.next.as_ref()];
    let mut texts = texts.into_iter().flatten();
    filter.is_empty() || texts.any(|text| escape(text).to_lowercase().contains(filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_an_object_come_in_one_order() {
        let lock = Lock {
            name: b"k".to_vec(),
            owner: Some(b"a".to_vec()),
            holds: 2,
            holders: 3,
            limit: 5,
            lease: -1,
            next: Some(b"b".to_vec()),
            held: 40,
            ..Lock::default()
        };
        let json = serde_json::to_string(&Shown::new(&lock, "here:1")).expect("JSON");
        assert_eq!(
            json,
            concat!(
                r#"{"name":"k","node":"here:1","owner":"a","holds":2,"holders":3,"limit":5,"lease_ms":null,"#,
                r#""token":null,"session":false,"waiting":0,"next":"b","held_ms":40}"#
            )
        );
    }
}
