//! Finds in a history what should not be. It knows what is promised, and nothing of how it is kept.
//!
//! Each report is certain: where a reply was lost, or a fault took something away, that part of the history is not
//! evidence. Each rule says what counts as evidence; that is as much a part of the promise as the rule.
//!
//! - [`order`]: first come, first served, by [`attempts`] that keep their [`places`].
//! - [`newcomers`]: no newcomer is served before a waiter that is in the queue already: none starves.
//! - [`waits`]: no grant lost, no waiter forgotten, no reply too late.
//!
//! Holders and tokens are judged elsewhere, see [`porcupine`](crate::porcupine).

mod attempts;
mod newcomers;
mod order;
mod places;
mod waits;

#[cfg(test)]
pub mod broken;

use std::collections::{BTreeMap, BTreeSet};

use self::attempts::Attempt;
use crate::history::{self, Answer, Call, Fault, Harm, History, Micros, Sight};

/// What should not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of two that were in the queue at once, the one behind was served first.
    Overtaken,
    /// One that was not in the queue yet was served before a waiter that was.
    Barged,
    /// A waiter holds the lock and was not told.
    LostGrant,
    /// The lock was free, or its holders had room, while a client waited for it.
    Stalled,
    /// There was no reply, however long one waited.
    Forgotten,
    /// WAIT was over long before the reply came.
    Late,
    /// An error that no client should get here.
    UnexpectedError,
    /// There when all had gone.
    LeftBehind,
    /// The server crashed.
    Crash,
    /// Porcupine says more than that all is well.
    Porcupine,
}

/// Where that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: Kind,
    pub lock: usize,
    /// Whom it befell, and who was preferred.
    pub clients: Vec<usize>,
    pub at: Micros,
    /// What else is to be said.
    pub text: String,
}

impl Violation {
    fn of(kind: Kind, lock: usize, clients: &[usize], at: Micros) -> Self {
        Self {
            kind,
            lock,
            clients: clients.to_vec(),
            at,
            text: String::new(),
        }
    }

    /// Of the whole round.
    pub fn said(kind: Kind, text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::of(kind, 0, &[], 0)
        }
    }
}

/// One lock's part of a history.
pub struct Part<'h> {
    history: &'h History,
    lock: usize,
    calls: Vec<&'h Call>,
    sights: Vec<&'h Sight>,
    /// By client.
    attempts: BTreeMap<usize, Vec<Attempt>>,
}

/// Longest that a reply is on its way, or a thread of this process is not run: what is less apart
/// is no evidence.
const SLACK: Micros = 1_500_000;

/// A server acts in the same iteration of its event loop; half a second is for observer and clients, which share a
/// small machine with it.
const SOON: Micros = 700_000;

/// All that is wrong with a history.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found: Vec<Violation> = history.calls.iter().filter_map(unexpected).collect();
    let locks: BTreeSet<usize> = (history.calls.iter().map(|call| call.lock))
        .chain(history.sights.iter().map(|sight| sight.lock))
        .collect();
    for lock in locks {
        let part = Part {
            history,
            lock,
            calls: history
                .calls
                .iter()
                .filter(|call| call.lock == lock)
                .collect(),
            sights: history
                .sights
                .iter()
                .filter(|sight| sight.lock == lock)
                .collect(),
            attempts: attempts::of_lock(history, lock),
        };
        found.extend(order::check(&part));
        found.extend(newcomers::check(&part));
        found.extend(waits::check(&part));
    }
    let left = history.left_behind.iter();
    found.extend(left.map(|what| Violation::said(Kind::LeftBehind, what)));
    found
}

/// Errors that tell a client to ask again, elsewhere or later.
const EXPECTED: [&str; 9] = [
    "READONLY",
    "UNBLOCKED",
    "LOADING",
    "MASTERDOWN",
    "OOM",
    "TAKENOVER",
    "NOREPLICAS",
    "BUSY",
    "MISCONF",
];

fn unexpected(call: &Call) -> Option<Violation> {
    let Answer::Refused(error) = &call.answer else {
        return None;
    };
    // A script reports what its commands report, in words of its own.
    let is_expected = EXPECTED.iter().any(|code| error.contains(code));
    (!is_expected).then(|| Violation {
        text: error.clone(),
        ..Violation::of(
            Kind::UnexpectedError,
            call.lock,
            &[call.client],
            call.answered,
        )
    })
}

impl Fault {
    /// Whether it was going on at some time between two instants.
    fn is_between(&self, from: Micros, to: Micros) -> bool {
        self.from <= to && from <= self.to
    }

    /// Whether it takes a lock from its holder.
    fn ends_hold(&self, lock: usize, client: usize, session: bool) -> bool {
        match self.harm {
            Harm::FlushAll
            | Harm::Kill {
                lost_since: Some(_),
            } => true,
            Harm::ClockStep { seconds } => seconds > 0,
            Harm::Break {
                lock: broken,
                client: of,
            } => broken == lock && of.is_none_or(|of| of == client),
            // Without its token a lock cannot be released by token.
            Harm::Delete { lock: other, key } => {
                other == lock && matches!(key, history::Part::Lock | history::Part::Token)
            }
            // The connection that the lock lives by.
            Harm::Kill { lost_since: None } | Harm::Failover => session,
            Harm::ClientKill { client: other } | Harm::HalfOpen { client: other } => {
                session && other == client
            }
            _ => false,
        }
    }

    /// Whether the server does nothing for a while, or nothing in time.
    fn delays(&self) -> bool {
        matches!(
            self.harm,
            Harm::Kill { .. }
                | Harm::Pause
                | Harm::Failover
                | Harm::OutOfMemory
                | Harm::ClockStep { .. }
        )
    }
}

/// How much of the time between two instants nothing could be done, by a fault or by the machine.
fn delayed(history: &History, from: Micros, to: Micros) -> Micros {
    let delays = history.faults.iter().filter(|fault| fault.delays());
    let delays = delays.map(|fault| (fault.from, fault.to));
    overlap(delays.chain(stalls(history, from, to)), from, to)
}

/// How much of the time between two instants the machine stood still.
fn stalled(history: &History, from: Micros, to: Micros) -> Micros {
    overlap(stalls(history, from, to), from, to)
}

fn stalls(
    history: &History,
    from: Micros,
    to: Micros,
) -> impl Iterator<Item = (Micros, Micros)> + '_ {
    let first = history.stalls.partition_point(|stall| stall.to <= from);
    let during = history.stalls[first..].iter();
    during
        .take_while(move |stall| stall.from < to)
        .map(|stall| (stall.from, stall.to))
}

/// What such times have in common with the time between two instants, each moment counted once.
fn overlap(times: impl Iterator<Item = (Micros, Micros)>, from: Micros, to: Micros) -> Micros {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    let (mut sum, mut counted) = (0, from);
    for (begin, end) in times {
        let end = end.min(to);
        sum += end.saturating_sub(begin.max(counted));
        counted = counted.max(end);
    }
    sum
}
