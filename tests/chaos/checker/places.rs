//! What takes a waiter's place in the queue, or may have taken it: the excuses of [`order`].
//!
//! [`order`]: super::order

use super::attempts::Attempt;
use super::{SLACK, SOON};
use crate::history::{Answer, Call, Fault, Harm, History, Micros, Part, Request, Way};

/// A client that was cut off while it asked.
#[derive(Clone, Copy, Debug)]
pub struct Absence {
    since: Micros,
    /// WAIT may have been over by then, and the place been given up.
    gave_up: bool,
}

impl Absence {
    /// From a request on that was not answered, or was answered that the client has to ask again.
    pub fn of(call: &Call) -> Self {
        let wait = match call.request {
            Request::Acquire { wait, .. } => wait,
            _ => None,
        };
        Self {
            since: call.answered,
            gave_up: wait.is_some_and(|wait| call.invoked + wait <= call.answered),
        }
    }
}

/// When the server has certainly read a request that was not refused.
pub fn certainly_heard(call: &Call) -> Micros {
    match call.request {
        Request::Acquire {
            way: Way::Blocked, ..
        } => call.answered.min(call.invoked + SOON),
        _ => call.answered,
    }
}

/// When the client was last taken out of the queue while it waited, and had to join anew: by CANCEL, and if it polls by
/// a deletion of the queue too. The server can have done so at any time until it said so, whatever it told the client
/// before.
pub fn taken_out(history: &History, lock: usize, attempt: &Attempt) -> Micros {
    let calls = history.calls.iter().filter(|call| call.lock == lock);
    let cancels = calls.filter_map(|call| match (call.request, &call.answer) {
        (Request::Cancel { owner }, answer) if owner == attempt.client => match answer {
            Answer::Refused(_) => None,
            // It may be read after its sender has gone.
            Answer::Lost | Answer::Never => Some((call.invoked, call.answered + SLACK)),
            _ => Some((call.invoked, call.answered)),
        },
        _ => None,
    });
    let faults = history.faults.iter();
    // The connections of blocked waiters prove that they wait: those are put back.
    let wipes = faults.filter(|fault| attempt.way == Way::Polling && fault.wipes(lock, false));
    let taken = cancels.chain(wipes.map(|fault| (fault.from, fault.to)));
    let taken = taken.filter(|(from, _)| *from <= attempt.ended);
    taken.map(|(_, to)| to).max().unwrap_or(0)
}

/// Whether a client that asks again has certainly kept its place since a server has last `known` that
/// it waits. A client that lost its connection has left the queue, unless it was the server that went
/// away. A server that was restarted, or has become the master, finds the waiters in the keys: it
/// keeps their places for a turn, of which only the first half counts.
pub fn is_kept(
    history: &History,
    attempt: &Attempt,
    known: Micros,
    absent: Option<Absence>,
    back: &Call,
) -> bool {
    let at = back.invoked;
    let faults = || history.faults.iter();
    let restarts = || faults().filter(|fault| fault.is_restart() && fault.is_between(known, at));
    let Some(first) = restarts().map(|fault| fault.from).min() else {
        return absent.is_none();
    };
    // A script that runs as Lua may drop a waiter that the server has only found in the keys.
    let is_dropped = history.scripted.contains(&back.lock);
    let is_lost =
        restarts().any(|fault| fault.loses_data() || at > fault.found_by() + history.turn / 2);
    let is_wiped =
        faults().any(|fault| fault.is_between(first, at) && fault.wipes(back.lock, true));
    let is_gone = absent.is_some_and(|absent| {
        let gave_place_up = absent.gave_up || is_cut(history, attempt, at);
        let is_servers = restarts().any(|fault| fault.is_between(absent.since, absent.since + 1));
        gave_place_up || !is_servers || had_its_turn(history, attempt, first, back)
    });
    !(is_dropped || is_lost || is_wiped || is_gone)
}

/// Whether the client's own connection was closed while it waited.
fn is_cut(history: &History, attempt: &Attempt, until: Micros) -> bool {
    history.faults.iter().any(|fault| {
        let hit = match fault.harm {
            Harm::ClientKill { client } | Harm::HalfOpen { client } => client == attempt.client,
            _ => false,
        };
        hit && fault.is_between(attempt.placed_since, until)
    })
}

/// Whether a client that was cut off by a restart may have been granted the lock right before, and
/// have lost it before it could ask again.
fn had_its_turn(history: &History, attempt: &Attempt, restart: Micros, back: &Call) -> bool {
    let away = back.invoked.saturating_sub(restart);
    let mut faults = history.faults.iter();
    attempt.lease <= away + SLACK
        || faults.any(|fault| {
            fault.ends_hold(back.lock, attempt.client, false)
                && fault.is_between(restart, back.invoked)
        })
}

impl Fault {
    /// Whether waiters are known from the keys alone afterwards.
    fn is_restart(&self) -> bool {
        matches!(self.harm, Harm::Kill { .. } | Harm::Failover)
    }

    /// When a server has found the waiters in the keys at the latest; a replica has had them all the
    /// time, and a failover goes on until the old master follows.
    fn found_by(&self) -> Micros {
        match self.harm {
            Harm::Failover => self.from,
            _ => self.to,
        }
    }

    fn loses_data(&self) -> bool {
        let lost_since = match self.harm {
            Harm::Kill { lost_since } => lost_since,
            _ => None,
        };
        lost_since.is_some()
    }

    /// Whether it deletes a lock's queue, or its deadlines at least.
    fn wipes(&self, lock: usize, deadlines_too: bool) -> bool {
        match self.harm {
            Harm::FlushAll => true,
            Harm::Delete { lock: other, key } => {
                other == lock && (key == Part::Queue || deadlines_too && key == Part::Deadlines)
            }
            _ => false,
        }
    }
}
