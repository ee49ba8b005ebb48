//! No waiter is forgotten: it is served when the lock is free, is told when it is served, and is told when its time is
//! up.

use std::collections::{BTreeMap, HashMap};

use super::attempts::{Attempt, of_lock};
use super::{SLACK, SOON, Violation, delayed, stalled};
use crate::history::{Answer, Call, EXCLUSIVE, Harm, History, Limit, Micros, Request, Sight, Way};

pub fn check(history: &History) -> Vec<Violation> {
    let mut found: Vec<Violation> = history.calls.iter().filter_map(forgotten).collect();
    found.extend(history.calls.iter().filter_map(|call| late(history, call)));
    let mut locks: BTreeMap<usize, Vec<&Sight>> = BTreeMap::new();
    for sight in &history.sights {
        locks.entry(sight.lock).or_default().push(sight);
    }
    for (lock, sights) in locks {
        let attempts = of_lock(history, lock);
        found.extend(lost_grants(history, lock, &sights));
        let limits = Limits::of_lock(history, lock);
        found.extend(stalls(history, &attempts, &limits, &sights));
        found.extend(given_to_absent(history, lock, &sights));
    }
    found
}

fn forgotten(call: &Call) -> Option<Violation> {
    (call.answer == Answer::Never).then_some(Violation::Forgotten {
        lock: call.lock,
        client: call.client,
        at: call.invoked,
    })
}

/// WAIT ends within a second and a half, not counting the time in which nothing could be done.
fn late(history: &History, call: &Call) -> Option<Violation> {
    let Request::Acquire {
        wait: Some(wait), ..
    } = call.request
    else {
        return None;
    };
    let delay = delayed(history, call.invoked, call.answered) + call.unread;
    let is_late = call.answered - call.invoked > wait + delay + SLACK;
    let is_answered = !matches!(call.answer, Answer::Lost | Answer::Never);
    (is_late && is_answered).then_some(Violation::Late {
        lock: call.lock,
        client: call.client,
        at: call.invoked,
    })
}

/// An observer sees a blocked waiter hold the lock for a while, and the waiter was not told.
fn lost_grants(history: &History, lock: usize, sights: &[&Sight]) -> Vec<Violation> {
    let calls = history.calls.iter().filter(|call| call.lock == lock);
    let lost = calls.filter_map(|call| {
        let Request::Acquire {
            way: Way::Blocked, ..
        } = call.request
        else {
            return None;
        };
        let first = sights.partition_point(|sight| sight.from < call.invoked);
        let told = call.answered - call.unread;
        let during = sights[first..].iter().take_while(|sight| sight.to < told);
        let mut holding = during.filter(|sight| sight.holders.contains(&call.client));
        let seen = holding.next()?;
        let until = disturbed_from(history, call, seen.from);
        let last = holding.take_while(|sight| sight.to < until).last()?;
        let longest = SOON + stalled(history, seen.to, last.from);
        (last.from > seen.to + longest).then_some(Violation::LostGrant {
            lock,
            client: call.client,
            at: seen.from,
        })
    });
    lost.collect()
}

/// When a call is first disturbed, after an instant, by something that keeps its reply from it.
fn disturbed_from(history: &History, call: &Call, after: Micros) -> Micros {
    let hits = history.faults.iter().filter(|fault| {
        let is_hit = match fault.harm {
            Harm::ClientKill { client } | Harm::HalfOpen { client } => client == call.client,
            _ => fault.delays(),
        };
        is_hit && fault.is_between(after, call.answered)
    });
    hits.map(|fault| fault.from).min().unwrap_or(Micros::MAX)
}

/// An observer sees the lock free for a while, with a living waiter at the head; or for a blocked waiter its holders
/// have room. To one that polls they may have had none in between, so that its turn began anew.
fn stalls(
    history: &History,
    attempts: &BTreeMap<usize, Vec<Attempt>>,
    limits: &Limits,
    sights: &[&Sight],
) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut since: Option<&Sight> = None;
    let mut is_held = false;
    for sight in sights {
        let head = sight.queue.first();
        let head = head.filter(|head| limits.have_room(&sight.holders, **head));
        let same = since.is_some_and(|since| head.is_some() && since.queue.first() == head);
        is_held = !sight.holders.is_empty() || same && is_held;
        if !same {
            since = head.map(|_| *sight);
            continue;
        }
        let (Some(begin), Some(head)) = (since, head) else {
            continue;
        };
        let waits = attempts.get(head).is_some_and(|attempts| {
            attempts.iter().any(|attempt| {
                attempt.way == Way::Blocked
                    && attempt.placed_since < begin.from
                    && sight.to < attempt.ended
            })
        });
        let longest = if waits { SOON } else { history.turn + SLACK };
        let stood = sight.from.saturating_sub(begin.to);
        if (waits || !is_held)
            && stood > longest + stalled(history, begin.to, sight.from)
            && !is_disturbed(history, *head, begin.from, sight.to)
        {
            found.push(Violation::Stalled {
                lock: sight.lock,
                waiter: *head,
                at: begin.from,
            });
            since = None;
        }
    }
    found
}

fn is_disturbed(history: &History, client: usize, from: Micros, to: Micros) -> bool {
    history.faults.iter().any(|fault| {
        let hit = match fault.harm {
            Harm::ClientKill { client: other } | Harm::HalfOpen { client: other } => {
                other == client
            }
            _ => fault.delays(),
        };
        // After a restart no waiter is taken for dead before a turn has passed.
        hit && fault.is_between(from.saturating_sub(history.turn), to)
    })
}

/// A client has closed its connection; later an observer sees it without the lock, and later still
/// with it, and it had not asked again.
fn given_to_absent(history: &History, lock: usize, sights: &[&Sight]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mine: Vec<&Call> = history
        .calls
        .iter()
        .filter(|call| call.lock == lock)
        .collect();
    for fault in &history.faults {
        let Harm::ClientKill { client } = fault.harm else {
            continue;
        };
        let next = (mine.iter())
            .filter(|call| call.client == client && call.invoked > fault.from)
            .map(|call| call.invoked)
            .min()
            .unwrap_or(Micros::MAX);
        // The request may have been written before and not been read yet.
        let lost = mine.iter().find(|call| {
            call.client == client && call.invoked <= fault.from && fault.from <= call.answered
        });
        let is_blocked = lost.is_some_and(|call| {
            call.answer == Answer::Lost
                && matches!(
                    call.request,
                    Request::Acquire {
                        way: Way::Blocked,
                        ..
                    }
                )
        });
        if !is_blocked {
            continue;
        }
        let first = sights.partition_point(|sight| sight.from <= fault.to);
        let before_next = sights[first..].iter().take_while(|sight| sight.to < next);
        let holds: Vec<bool> = before_next
            .map(|sight| sight.holders.contains(&client))
            .collect();
        let without = holds.iter().position(|holds| !holds);
        if let Some(without) = without
            && holds[without..].contains(&true)
            && !(history.faults.iter())
                .any(|other| other.delays() && other.is_between(fault.from, fault.to + SOON))
        {
            found.push(Violation::GivenToAbsent {
                lock,
                client,
                at: fault.to,
            });
        }
    }
    found
}

/// The least limit that each client has asked for.
struct Limits(HashMap<usize, Limit>);

impl Limits {
    fn of_lock(history: &History, lock: usize) -> Self {
        let mut limits: HashMap<usize, Limit> = HashMap::new();
        for call in history.calls.iter().filter(|call| call.lock == lock) {
            if let Request::Acquire { limit, .. } = call.request {
                let least = limits.entry(call.client).or_insert(limit);
                *least = limit.min(*least);
            }
        }
        Self(limits)
    }

    /// Whether a waiter certainly can have the lock beside its holders.
    fn have_room(&self, holders: &[usize], waiter: usize) -> bool {
        let least = |client: &usize| self.0.get(client).map_or(EXCLUSIVE, |least| *least);
        let all = holders.len() + 1;
        holders.is_empty() || least(&waiter) >= all && holders.iter().all(|of| least(of) >= all)
    }
}
