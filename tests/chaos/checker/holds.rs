//! Never more holders than any of them tolerates, by witness: a client that has read that it holds the lock, and has
//! not yet written that it gives it up, is inside. One that asked without SHARED may not be inside with another, and
//! with one that asked for a limit there may not be more than that.
//!
//! The time inside ends with the lease, of which only the first half counts (the other half is for
//! a reply that was on its way, a server that was paused, a thread that was not run), less what the
//! machine stood still before the reply was read; and with any fault that takes locks away. A
//! session's ends with its connection only.

use std::collections::{HashMap, HashSet};

use super::{SLACK, Violation, stalled};
use crate::history::{
    Answer, Call, EXCLUSIVE, Fault, Harm, History, Limit, Micros, Part, Request, Way,
};

/// Shorter leases are for holds that are not meant to be safe.
const LONG_LEASE: Micros = 2_000_000;

/// A time for which a client certainly held a lock.
#[derive(Clone, Copy, Debug)]
struct Inside {
    client: usize,
    limit: Limit,
    from: Micros,
    to: Micros,
}

/// A hold that has begun.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// The earliest that it can have begun, for faults.
    granted: Micros,
    from: Micros,
    /// When the lease has certainly not ended.
    safe_until: Micros,
    session: bool,
    limit: Limit,
    /// How many; nothing if a reply was lost.
    count: Option<i64>,
    /// By which one hold is told from the next; scripts have none.
    token: Option<i64>,
}

/// What is known on the way through a history, by lock and client.
struct Ledger<'h> {
    history: &'h History,
    found: Vec<Violation>,
    holds: HashMap<(usize, usize), Hold>,
    /// May hold the lock without knowing it, as a reply was lost.
    doubtful: HashSet<(usize, usize)>,
}

pub fn check(history: &History) -> Vec<Violation> {
    let mut inside: HashMap<usize, Vec<Inside>> = HashMap::new();
    let mut ledger = Ledger {
        history,
        found: Vec::new(),
        holds: HashMap::new(),
        doubtful: if history.resumed {
            all_locks_and_clients(history)
        } else {
            HashSet::new()
        },
    };
    for call in &history.calls {
        let key = (call.lock, call.client);
        let was = ledger.holds.remove(&key);
        let is = ledger.step(was, call);
        // A session takes only its own holds with it.
        if call.answer == Answer::Lost || call.request == Request::Close {
            ledger.doubtful.insert(key);
        }
        if let Some(hold) = was
            && is.is_none_or(|is| is.from != hold.from)
        {
            let to = certain_end(&hold, call, &history.faults);
            let times = inside.entry(call.lock).or_default();
            times.push(Inside {
                client: call.client,
                limit: hold.limit,
                from: hold.from,
                to,
            });
        }
        if let Some(hold) = is {
            ledger.holds.insert(key, hold);
        }
    }
    let overlaps = inside
        .into_iter()
        .flat_map(|(lock, times)| overlaps(lock, times));
    ledger.found.into_iter().chain(overlaps).collect()
}

fn all_locks_and_clients(history: &History) -> HashSet<(usize, usize)> {
    let calls = history.calls.iter();
    calls.map(|call| (call.lock, call.client)).collect()
}

impl Ledger<'_> {
    /// The hold after a call, if there is one.
    fn step(&mut self, was: Option<Hold>, call: &Call) -> Option<Hold> {
        match (call.request, &call.answer) {
            (
                Request::Acquire {
                    way: Way::Transaction,
                    ..
                },
                _,
            ) => was,
            (Request::Acquire { .. }, Answer::Granted(token)) => self.granted(was, call, *token),
            (Request::Renew { lease }, Answer::Done) => {
                was.map(|hold| hold.renewed(self.history, call, lease))
            }
            // The hold count is unknown now, or the session has ended.
            (Request::Acquire { .. } | Request::Renew { .. }, Answer::Lost) => {
                was.filter(|hold| !hold.session).map(|hold| Hold {
                    count: None,
                    ..hold
                })
            }
            (Request::Release { .. }, answer) => {
                let is = release(was?, call, answer, &self.history.faults, &mut self.found);
                if is.is_none() && *answer != Answer::Lost && !self.was_ever_cut(call) {
                    self.doubtful.remove(&(call.lock, call.client));
                }
                is
            }
            (Request::Close, _) => was.filter(|hold| !hold.session),
            _ => was,
        }
    }

    fn granted(&self, was: Option<Hold>, call: &Call, token: Option<i64>) -> Option<Hold> {
        let Request::Acquire {
            lease,
            session,
            once,
            limit,
            ..
        } = call.request
        else {
            return was;
        };
        let read = call.answered - call.unread;
        let delay = SLACK + stalled(self.history, call.invoked, call.answered);
        let earliest = read.saturating_sub(delay);
        // A server that has lost what happened last can know of a hold that was over.
        let same = was.filter(|hold| token.is_some() && hold.token == token);
        let again =
            same.filter(|hold| certain_end(hold, call, &self.history.faults) == call.invoked);
        let is_known = token.is_some()
            && !self.doubtful.contains(&(call.lock, call.client))
            && same.is_none()
            && !self.is_restored(call);
        let new = Hold {
            granted: call.invoked.max(earliest),
            from: call.answered,
            safe_until: if session && lease >= LONG_LEASE {
                Micros::MAX
            } else {
                safe_until(self.history, call, lease)
            },
            session,
            limit,
            count: is_known.then_some(1),
            token,
        };
        Some(again.map_or(new, |hold| {
            Hold {
                session: hold.session || session,
                count: hold
                    .count
                    .filter(|_| !self.is_restored(call))
                    .map(|count| count + i64::from(!once)),
                ..hold.renewed(self.history, call, lease)
            }
        }))
    }

    /// A server that has lost what happened last may know of holds that were given up. So does one
    /// that refused a release by a token that was deleted.
    fn is_restored(&self, call: &Call) -> bool {
        self.history.faults.iter().any(|fault| {
            let is_loss = match fault.harm {
                Harm::Kill { lost_since } => lost_since.is_some(),
                Harm::Delete { lock, key } => lock == call.lock && key == Part::Token,
                _ => false,
            };
            is_loss && fault.from < call.answered
        })
    }

    /// What the server has not noticed, it may still serve.
    fn was_ever_cut(&self, call: &Call) -> bool {
        self.history.faults.iter().any(|fault| {
            let is_cut = matches!(fault.harm, Harm::HalfOpen { client } if client == call.client);
            is_cut && fault.from < call.answered
        })
    }
}

impl Hold {
    /// With a fresh lease, which can be shorter.
    fn renewed(self, history: &History, call: &Call, lease: Micros) -> Self {
        let safe_until = if self.session {
            self.safe_until
        } else {
            safe_until(history, call, lease)
        };
        Self { safe_until, ..self }
    }
}

fn safe_until(history: &History, call: &Call, lease: Micros) -> Micros {
    if lease < LONG_LEASE {
        return call.invoked + lease / 2;
    }
    let read = call.answered - call.unread;
    // What was lost before that is not part of this lease.
    let from = call.invoked.max(read.saturating_sub(lease));
    (read + lease / 2).saturating_sub(stalled(history, from, read))
}

fn release(
    hold: Hold,
    call: &Call,
    answer: &Answer,
    faults: &[Fault],
    found: &mut Vec<Violation>,
) -> Option<Hold> {
    let is_certain = certain_end(&hold, call, faults) == call.invoked
        && !cut_off(&hold, call, faults, call.answered)
        && call.answered <= hold.safe_until;
    match *answer {
        Answer::NotHeld if is_certain => {
            found.push(Violation::Robbed {
                lock: call.lock,
                client: call.client,
                at: call.invoked,
            });
            None
        }
        Answer::Left(left) => {
            let expected = hold.count.map(|count| count - 1);
            if let Some(expected) = expected.filter(|expected| is_certain && *expected != left) {
                let (lock, client, at) = (call.lock, call.client, call.invoked);
                found.push(Violation::WrongHolds {
                    lock,
                    client,
                    at,
                    left,
                    expected,
                });
            }
            (left > 0).then_some(Hold {
                count: expected,
                ..hold
            })
        }
        // It may have been released. A refusal has changed nothing, but leads to another try.
        Answer::Refused(_) => Some(hold),
        _ => None,
    }
}

/// When the time inside certainly has not ended, given the call that ends it.
fn certain_end(hold: &Hold, call: &Call, faults: &[Fault]) -> Micros {
    let ends = faults.iter().filter(|fault| {
        fault.to >= hold.granted && fault.ends_hold(call.lock, call.client, hold.session)
    });
    let first = ends.map(|fault| fault.from).min().unwrap_or(Micros::MAX);
    call.invoked.min(hold.safe_until).min(first)
}

fn cut_off(hold: &Hold, call: &Call, faults: &[Fault], until: Micros) -> bool {
    faults.iter().any(|fault| {
        fault.is_between(hold.granted, until)
            && fault.ends_hold(call.lock, call.client, hold.session)
    })
}

fn overlaps(lock: usize, mut times: Vec<Inside>) -> Vec<Violation> {
    times.retain(|time| time.from < time.to);
    times.sort_by_key(|time| time.from);
    let mut found = Vec::new();
    let mut inside: Vec<Inside> = Vec::new();
    for time in times {
        inside.retain(|other| time.from < other.to && other.client != time.client);
        inside.push(time);
        let limit = inside.iter().map(|of| of.limit).min();
        if let Some(limit) = limit.filter(|limit| inside.len() > *limit) {
            found.push(too_many(lock, &inside, limit, time.from));
        }
    }
    found
}

fn too_many(lock: usize, inside: &[Inside], limit: Limit, at: Micros) -> Violation {
    let clients: Vec<usize> = inside.iter().map(|of| of.client).collect();
    match clients[..] {
        [first, .., last] if limit == EXCLUSIVE => Violation::TwoHolders {
            lock,
            clients: [first, last],
            at,
        },
        _ => Violation::TooManyHolders {
            lock,
            clients,
            limit,
            at,
        },
    }
}
