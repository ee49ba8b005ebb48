//! `fairlock queue`: the waiters of a lock, in order.

use std::os::unix::ffi::OsStringExt as _;

use serde::Serialize;

use crate::args::QueueArgs;
use crate::failure::Failure;
use crate::lock::Waiter;
use crate::server::{Seeds, Target, Trouble};
use crate::shown::{known, limited};
use crate::text::{escape, millis, word};

use super::print;

/// Waiters that the server is asked for at once.
const PAGE: usize = 1000;

/// A waiter, and where it stands.
#[derive(Serialize)]
struct Shown {
    /// From 1, the head.
    position: usize,
    owner: String,
    /// `blocked` or `polling`.
    state: &'static str,
    /// Milliseconds; null if it is blocked: it waits as long as it is connected.
    deadline_ms: Option<i64>,
    /// How many holders it tolerates: 1 if it wants the lock for itself; null if any number.
    limit: Option<i64>,
}

impl Shown {
    fn new(position: usize, waiter: &Waiter) -> Self {
        Self {
            position,
            owner: escape(&waiter.owner),
            state: if waiter.blocked { "blocked" } else { "polling" },
            deadline_ms: known(waiter.deadline),
            limit: limited(waiter.limit),
        }
    }
}

fn line(position: usize, waiter: &Waiter) -> String {
    let state = match known(waiter.deadline) {
        Some(left) => format!("polling deadline={}", millis(left)),
        None => "blocked".to_owned(),
    };
    let shared = match waiter.limit {
        1 => String::new(),
        0 => " limit=none".to_owned(),
        limit => format!(" limit={limit}"),
    };
    format!("{position} {} {state}{shared}", word(&waiter.owner))
}

/// Lists the waiters; the exit code.
pub async fn run(args: QueueArgs, target: Target) -> Result<u8, Failure> {
    let key = args.key.into_vec();
    let mut seeds = Seeds::new(target);
    let link = seeds
        .connect_for(&key)
        .await
        .map_err(Trouble::into_failure)?;
    let mut server = link.sender();
    let limit = args.limit.map_or(usize::MAX, |limit| limit as usize);
    let mut position = 0;
    while position < limit {
        let count = PAGE.min(limit - position);
        let some = server.waiters(&key, position, count).await;
        let some = some.map_err(Trouble::into_failure)?;
        for waiter in &some {
            position += 1;
            let object = Shown::new(position, waiter);
            if !print(args.json, &object, || line(position, waiter))? {
                return Ok(0);
            }
        }
        if some.len() < count {
            break;
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_is_a_line() {
        let waiter = |deadline, limit| Waiter {
            owner: b"two words".to_vec(),
            blocked: deadline < 0,
            deadline,
            limit,
        };
        assert_eq!(line(1, &waiter(-1, 1)), "1 \"two words\" blocked");
        assert_eq!(
            line(2, &waiter(4_200, 0)),
            "2 \"two words\" polling deadline=4.2s limit=none"
        );
        assert_eq!(line(3, &waiter(-1, 5)), "3 \"two words\" blocked limit=5");
    }
}
