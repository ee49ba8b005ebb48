//! Tokens grow: an acquisition that began after another one was told its token has a greater one.
//!
//! A kill that loses writes loses tokens: what was granted in the time that it may have taken away
//! is no bound for what comes after it. Nor is anything before a kill if the clock was set: nothing is kept of a
//! lock that is free but the time.

use super::Violation;
use crate::history::{Answer, Call, Fault, Harm, History, Micros, Request};

/// A token, and who was told.
#[derive(Clone, Copy)]
struct Told {
    token: i64,
    at: Micros,
    client: usize,
}

pub fn check(history: &History) -> Vec<Violation> {
    let mut locks: Vec<usize> = history.calls.iter().map(|call| call.lock).collect();
    locks.sort_unstable();
    locks.dedup();
    locks
        .iter()
        .flat_map(|lock| check_lock(history, *lock))
        .collect()
}

fn token_of(call: &Call) -> Option<i64> {
    match (call.request, &call.answer) {
        (Request::Acquire { .. }, Answer::Granted(token)) => *token,
        _ => None,
    }
}

fn check_lock(history: &History, lock: usize) -> Vec<Violation> {
    let mut found = Vec::new();
    let mine = || history.calls.iter().filter(move |call| call.lock == lock);
    let mut told: Vec<Told> = mine()
        .filter_map(|call| {
            let token = token_of(call)?;
            Some(Told {
                token,
                at: call.answered,
                client: call.client,
            })
        })
        .collect();
    told.sort_by_key(|told| told.at);
    let kills: Vec<(&Fault, Micros)> = (history.faults.iter())
        .filter_map(|fault| Some((fault, lost_since(history, fault)?)))
        .collect();
    for call in mine() {
        let Some(token) = token_of(call) else {
            continue;
        };
        let before = told[..told.partition_point(|told| told.at < call.invoked)].iter();
        let bound = before
            .rev()
            // Older ones are bounded by these.
            .take(200)
            .filter(|told| {
                !kills.iter().any(|(kill, since)| {
                    *since <= told.at && told.at <= kill.to && kill.from <= call.answered
                })
            })
            .max_by_key(|told| told.token);
        if let Some(bound) = bound
            && (token < bound.token || (token == bound.token && call.client != bound.client))
        {
            found.push(Violation::TokenNotGrown {
                lock,
                client: call.client,
                at: call.invoked,
                token,
                after: bound.token,
            });
        }
    }
    found
}

/// Since when a fault may have taken tokens away.
fn lost_since(history: &History, fault: &Fault) -> Option<Micros> {
    let Harm::Kill { lost_since } = fault.harm else {
        return None;
    };
    let mut before = history
        .faults
        .iter()
        .filter(|other| other.from < fault.from);
    let clock_was_set = before.any(|other| matches!(other.harm, Harm::ClockStep { .. }));
    if clock_was_set { Some(0) } else { lost_since }
}
