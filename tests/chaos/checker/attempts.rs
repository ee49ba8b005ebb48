//! Requests put together to attempts: a client that waits may have to ask more than once.

use std::collections::{BTreeMap, BTreeSet};

use super::SLACK;
use crate::history::{Answer, Fault, Harm, History, Micros, Part, Request, Way};

/// What a client did to get a lock once.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub client: usize,
    pub way: Way,
    /// Since then its place in the queue, if it has one, is certainly kept.
    pub placed_since: Micros,
    /// The last reply.
    pub ended: Micros,
    pub granted: bool,
    /// The token, if it was granted one.
    pub token: Option<i64>,
    /// The way of waiting is one that nobody can be overtaken in.
    pub protected: bool,
}

/// The attempts at one lock, by client.
pub fn of_lock(history: &History, lock: usize) -> BTreeMap<usize, Vec<Attempt>> {
    let mut attempts: BTreeMap<(usize, u64), Attempt> = BTreeMap::new();
    let mut lost: BTreeMap<(usize, u64), Micros> = BTreeMap::new();
    let mut cancelled: BTreeSet<usize> = BTreeSet::new();
    for call in history.calls.iter().filter(|call| call.lock == lock) {
        if let Request::Cancel { owner } = call.request {
            cancelled.insert(owner);
        }
        let Request::Acquire { way, .. } = call.request else {
            continue;
        };
        let key = (call.client, call.attempt);
        let attempt = attempts.entry(key).or_insert_with(|| Attempt {
            client: call.client,
            way,
            placed_since: call.invoked,
            ended: call.answered,
            granted: false,
            token: None,
            protected: matches!(way, Way::Blocked | Way::Polling),
        });
        if attempt.granted {
            // A second hold.
            continue;
        }
        let is_cancelled = cancelled.remove(&call.client);
        let is_lost = lost
            .remove(&key)
            .is_some_and(|at| !place_is_kept(history, attempt, at, call.invoked));
        let is_moved = attempt.placed_since < places_since(history, lock, call.invoked);
        let is_wiped = is_wiped(history, lock, attempt.ended, call.invoked);
        if is_cancelled || is_lost || is_moved || is_wiped {
            attempt.placed_since = call.invoked;
        }
        attempt.ended = call.answered;
        match &call.answer {
            Answer::Granted(token) => (attempt.granted, attempt.token) = (true, *token),
            answer if is_interruption(answer) => {
                lost.insert(key, call.answered);
            }
            _ => (),
        }
    }
    let mut by_client: BTreeMap<usize, Vec<Attempt>> = BTreeMap::new();
    for attempt in attempts.into_values() {
        by_client.entry(attempt.client).or_default().push(attempt);
    }
    by_client
}

/// When places were last lost before an instant: by a kill that loses writes; and, where Redisson's
/// scripts run as well, by any restart, as they may drop who has not come back yet.
fn places_since(history: &History, lock: usize, at: Micros) -> Micros {
    let scripted = history.scripted.contains(&lock);
    let losses = history.faults.iter().filter(|fault| match fault.harm {
        Harm::Kill { lost_since } => lost_since.is_some() || scripted,
        Harm::Failover => scripted,
        _ => false,
    });
    let ends = losses
        .filter(|fault| fault.from <= at)
        .map(|fault| fault.to);
    ends.max().unwrap_or(0)
}

/// A new server, or one that has become the master, knows of who waits from the keys alone, until
/// they ask again: if the keys go before that, so do their places.
fn is_wiped(history: &History, lock: usize, last: Micros, back: Micros) -> bool {
    let restarts = history.faults.iter().filter(|fault| {
        let is_restart = matches!(fault.harm, Harm::Kill { .. } | Harm::Failover);
        is_restart && fault.is_between(last.saturating_sub(SLACK), back)
    });
    let wipes = |fault: &&Fault| match fault.harm {
        Harm::FlushAll => true,
        Harm::Delete { lock: other, key } => {
            other == lock && matches!(key, Part::Queue | Part::Deadlines)
        }
        _ => false,
    };
    let from = restarts.map(|fault| fault.from).min();
    from.is_some_and(|from| {
        let mut wipes = history.faults.iter().filter(wipes);
        wipes.any(|fault| fault.is_between(from, back))
    })
}

fn is_interruption(answer: &Answer) -> bool {
    match answer {
        Answer::Lost => true,
        Answer::Refused(error) => error.starts_with("UNBLOCKED") || error.starts_with("TAKENOVER"),
        _ => false,
    }
}

/// Who lost its connection has left the queue, unless it was the server that went away with all
/// data kept, and it came back within half a turn.
fn place_is_kept(history: &History, attempt: &Attempt, lost: Micros, back: Micros) -> bool {
    let came_back = |to: Micros| back <= to + history.turn / 2;
    history.faults.iter().any(|fault| {
        let kept = matches!(fault.harm, Harm::Kill { lost_since: None } | Harm::Failover);
        kept && fault.is_between(lost, lost + 1) && came_back(fault.to)
    }) && !history.faults.iter().any(|fault| {
        let hit = match fault.harm {
            Harm::ClientKill { client } | Harm::HalfOpen { client } => client == attempt.client,
            _ => false,
        };
        hit && fault.is_between(attempt.placed_since, back)
    })
}
