//! An event as a line.

use std::fmt::Write as _;

use serde::Serialize;

use crate::lock::Lock;
use crate::shown::{State, lease, token};
use crate::text::{escape, holders, now, quote};

use super::holding::Changes;

/// An event, and the lock's state when it was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    time: String,
    event: String,
    key: String,
    /// The owners that lost the lock since the line before, and those that got it.
    from: Vec<String>,
    to: Vec<String>,
    #[serde(flatten)]
    state: State,
}

impl Seen {
    /// Just now.
    #[must_use]
    pub fn new(event: &str, key: &[u8], lock: &Lock, changes: &Changes) -> Self {
        let names = |names: &[Vec<u8>]| names.iter().map(|name| escape(name)).collect();
        Self {
            time: now(),
            event: escape(event.as_bytes()),
            key: escape(key),
            from: names(&changes.from),
            to: names(&changes.to),
            state: State::of(lock),
        }
    }

    /// A line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let Self {
            time,
            event,
            key,
            state,
            ..
        } = self;
        let mut line = format!("{time} {} {event}", quote(key));
        for (word, names) in [("from", &self.from), ("to", &self.to)] {
            for name in names {
                // Writing to a string does not fail.
                let _ = write!(line, " {word}={}", quote(name));
            }
        }
        match &state.owner {
            None => line.push_str(" free"),
            Some(owner) => {
                let (token, lease) = (token(state.token), lease(state.lease_ms.unwrap_or(-1)));
                let _ = write!(line, " holder={} token={token} lease={lease}", quote(owner));
                if state.holders > 0 && state.limit != Some(1) {
                    let limit = state.limit.unwrap_or(0);
                    let _ = write!(line, " {}", holders(state.holders, limit));
                }
            }
        }
        let _ = write!(line, " waiting={}", state.waiting);
        if let Some(next) = &state.next {
            let _ = write!(line, " next={}", quote(next));
        }
        line
    }

    /// A line of JSON.
    pub fn json(&self) -> std::io::Result<String> {
        Ok(serde_json::to_string(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Lock {
        Lock {
            owner: Some(b"al ice".to_vec()),
            holds: 1,
            lease: 2_500,
            token: Some(7),
            waiting: 2,
            next: Some(b"bob".to_vec()),
            ..Lock::default()
        }
    }

    fn seen(event: &str, lock: &Lock) -> Seen {
        Seen::new(event, b"k", lock, &Changes::default())
    }

    #[test]
    fn a_line_names_the_old_and_the_new_holder() {
        let changes = Changes {
            from: vec![b"al ice".to_vec(), b"bob".to_vec()],
            to: vec![b"carl".to_vec()],
        };
        let seen = Seen::new("fairlock.release", b"k", &Lock::default(), &changes);
        let line = seen.line();
        assert!(
            line.ends_with(" k fairlock.release from=\"al ice\" from=bob to=carl free waiting=0"),
            "{line}"
        );
        let json: serde_json::Value =
            serde_json::from_str(&seen.json().expect("JSON")).expect("JSON");
        assert_eq!(json["from"], serde_json::json!(["al ice", "bob"]));
        assert_eq!(json["to"], serde_json::json!(["carl"]));
    }

    #[test]
    fn a_line_says_who_holds_it_and_who_waits() {
        let line = seen("fairlock.acquire", &held()).line();
        let (_, line) = line.split_once(' ').expect("a time");
        assert_eq!(
            line,
            "k fairlock.acquire holder=\"al ice\" token=7 lease=2.5s waiting=2 next=bob"
        );
        let shared = Lock {
            holders: 3,
            ..held()
        };
        let line = seen("fairlock.acquire", &shared).line();
        assert!(
            line.contains(" lease=2.5s holders=3 limit=none waiting=2"),
            "{line}"
        );
        let limited = Lock { limit: 5, ..shared };
        let line = seen("fairlock.acquire", &limited).line();
        assert!(line.contains(" holders=3 limit=5 "), "{line}");
        let alone = Lock {
            holders: 1,
            limit: 1,
            ..held()
        };
        let line = seen("fairlock.acquire", &alone).line();
        assert!(!line.contains("holders="), "{line}");
        let line = seen("del", &Lock::default()).line();
        assert!(line.ends_with(" k del free waiting=0"), "{line}");
    }

    #[test]
    fn a_line_of_json_says_the_same() {
        let json = seen("fairlock.release", &held()).json().expect("JSON");
        let (_, json) = json.split_once(',').expect("a time");
        assert_eq!(
            json,
            concat!(
                r#""event":"fairlock.release","key":"k","from":[],"to":[],"owner":"al ice","holds":1,"#,
                r#""holders":0,"limit":null,"lease_ms":2500,"token":7,"session":false,"waiting":2,"next":"bob"}"#
            )
        );
    }
}
