//! Tokens grow: an acquisition that began after another one was told its token has a greater one.
//!
//! A kill that loses writes loses tokens: what was granted in the time that it may have taken away is not a bound for
//! later ones. Nor is anything before a kill if the clock was set: nothing is kept of a lock that is free but the time.
//!
//! The only holder of a lock that asks again has the greatest token of all. One of several holders need not have it: a
//! token that it was told before is not new, and a token whose reply was lost may have been issued since then.

use std::collections::{HashMap, HashSet};

use super::Violation;
use crate::history::{Answer, Call, EXCLUSIVE, Fault, Harm, History, Micros, Request};

/// A token, and the client that was told.
#[derive(Clone, Copy)]
struct Told {
    token: i64,
    at: Micros,
    /// If that was before a kill was over, the server that was killed has answered, however late that was read.
    asked: Micros,
    client: usize,
}

/// What is known on the way through a lock's calls of clients that ask SHARED.
#[derive(Default)]
struct Sharers {
    told: HashSet<(usize, i64)>,
    /// Since when a client may hold the lock without knowing it.
    doubtful: HashMap<usize, Micros>,
    /// They have certainly held nothing since the history began.
    released: HashSet<usize>,
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
                asked: call.invoked,
                client: call.client,
            })
        })
        .collect();
    told.sort_by_key(|told| told.at);
    let kills: Vec<(&Fault, Micros)> = (history.faults.iter())
        .filter_map(|fault| Some((fault, lost_since(history, fault)?)))
        .collect();
    let mut sharers = Sharers::default();
    for call in mine() {
        let begun = sharers.begun(history, call);
        sharers.step(history, call);
        let (Some(token), Some(begun)) = (token_of(call), begun) else {
            continue;
        };
        let before = told[..told.partition_point(|told| told.at < begun)].iter();
        let bound = before
            .rev()
            // Older ones are bounded by these.
            .take(200)
            .filter(|told| {
                !kills.iter().any(|(kill, since)| {
                    *since <= told.at && told.asked <= kill.to && kill.from <= call.answered
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

impl Sharers {
    /// The earliest that an acquisition can have begun; `None` if its token was told before.
    fn begun(&self, history: &History, call: &Call) -> Option<Micros> {
        if !is_shared(call) {
            return Some(call.invoked);
        }
        let token = token_of(call)?;
        let is_from_before = history.resumed && !self.released.contains(&call.client);
        let doubtful = match self.doubtful.get(&call.client) {
            Some(since) => Some(*since),
            None => is_from_before.then_some(0),
        };
        let cut = cut_off_since(history, call);
        let begun = doubtful.into_iter().chain(cut).min();
        let is_new = !self.told.contains(&(call.client, token));
        is_new.then(|| begun.unwrap_or(call.invoked).min(call.invoked))
    }

    fn step(&mut self, history: &History, call: &Call) {
        let client = call.client;
        if let Some(token) = token_of(call).filter(|_| is_shared(call)) {
            self.told.insert((client, token));
        }
        match (call.request, &call.answer) {
            (Request::Acquire { .. }, Answer::Lost | Answer::Refused(_)) => {
                self.doubtful.entry(client).or_insert(call.invoked);
            }
            (Request::Release { .. }, Answer::Left(0) | Answer::NotHeld) => {
                self.released.insert(client);
                if cut_off_since(history, call).is_none() {
                    self.doubtful.remove(&client);
                }
            }
            _ => (),
        }
    }
}

fn is_shared(call: &Call) -> bool {
    matches!(call.request, Request::Acquire { limit, .. } if limit != EXCLUSIVE)
}

/// What the server has not noticed, it may still serve.
fn cut_off_since(history: &History, call: &Call) -> Option<Micros> {
    let cuts = history.faults.iter().filter(|fault| {
        let is_cut = matches!(fault.harm, Harm::HalfOpen { client } if client == call.client);
        is_cut && fault.from < call.answered
    });
    cuts.map(|fault| fault.from).min()
}

/// Since when a fault may have taken tokens away.
pub fn lost_since(history: &History, fault: &Fault) -> Option<Micros> {
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
