//! No waiter is forgotten: it is served when the lock is free, is told when it is served, and is told when its time is
//! up.

use std::collections::HashMap;

use super::{Kind, Part, SLACK, SOON, Violation, delayed, stalled};
use crate::history::{Answer, Call, EXCLUSIVE, Harm, History, Limit, Micros, Request, Sight, Way};

pub fn check(part: &Part) -> Vec<Violation> {
    let of = |kind, call: &Call| Violation::of(kind, part.lock, &[call.client], call.invoked);
    let mut found = Vec::new();
    for call in &part.calls {
        if call.answer == Answer::Never {
            found.push(of(Kind::Forgotten, call));
        }
        if is_late(part.history, call) {
            found.push(of(Kind::Late, call));
        }
    }
    found.extend(lost_grants(part));
    found.extend(stalls(part));
    found
}

/// WAIT ends within a second and a half, not counting the time in which nothing could be done.
fn is_late(history: &History, call: &Call) -> bool {
    let Request::Acquire {
        wait: Some(wait), ..
    } = call.request
    else {
        return false;
    };
    let delay = delayed(history, call.invoked, call.answered);
    let is_answered = !matches!(call.answer, Answer::Lost | Answer::Never);
    is_answered && call.answered - call.invoked > wait + delay + SLACK
}

fn is_blocking(call: &Call) -> bool {
    matches!(
        call.request,
        Request::Acquire {
            way: Way::Blocked,
            ..
        }
    )
}

/// An observer sees a blocked waiter hold the lock for a while, and the waiter was not told.
fn lost_grants(part: &Part) -> Vec<Violation> {
    let calls = part.calls.iter().filter(|call| is_blocking(call));
    let lost = calls.filter_map(|call| {
        let first = (part.sights).partition_point(|sight| sight.from < call.invoked);
        let during = part.sights[first..]
            .iter()
            .take_while(|sight| sight.to < call.answered);
        let mut holding = during.filter(|sight| sight.holders.contains(&call.client));
        let seen = holding.next()?;
        let until = disturbed_from(part.history, call, seen.from);
        let last = holding.take_while(|sight| sight.to < until).last()?;
        let longest = SOON + stalled(part.history, seen.to, last.from);
        let is_lost = last.from > seen.to + longest;
        is_lost.then(|| Violation::of(Kind::LostGrant, part.lock, &[call.client], seen.from))
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
fn stalls(part: &Part) -> Vec<Violation> {
    let limits = Limits::of(&part.calls);
    let mut found = Vec::new();
    let mut since: Option<&Sight> = None;
    let mut is_held = false;
    for sight in &part.sights {
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
        let waits = part.attempts.get(head).is_some_and(|attempts| {
            attempts.iter().any(|attempt| {
                attempt.way == Way::Blocked
                    && attempt.placed_since < begin.from
                    && sight.to < attempt.ended
            })
        });
        let longest = if waits {
            SOON
        } else {
            part.history.turn + SLACK
        };
        let stood = sight.from.saturating_sub(begin.to);
        if (waits || !is_held)
            && stood > longest + stalled(part.history, begin.to, sight.from)
            && !is_disturbed(part.history, *head, begin.from, sight.to)
        {
            found.push(Violation::of(
                Kind::Stalled,
                part.lock,
                &[*head],
                begin.from,
            ));
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

/// The least limit that each client has asked for.
struct Limits(HashMap<usize, Limit>);

impl Limits {
    fn of(calls: &[&Call]) -> Self {
        let mut limits: HashMap<usize, Limit> = HashMap::new();
        for call in calls {
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
