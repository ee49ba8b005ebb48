//! Histories that are broken, each in one way, and what is found in them; and beside each the same
//! history with what excuses it.

mod holds;
mod order;
mod places;
mod sharing;
mod waits;

use super::{HALF_A_TRANSACTION, Violation, check};
use crate::history::{
    Answer, Call, EXCLUSIVE, Fault, Harm, History, Limit, Micros, Request, Sight, Stall, Way,
};

/// Of every lock here, microseconds.
const LEASE: Micros = 4_000_000;
const MS: Micros = 1000;

fn ask(client: usize, invoked: Micros, answered: Micros, answer: Answer) -> Call {
    Call {
        client,
        lock: 0,
        attempt: 1,
        request: Request::Acquire {
            way: Way::Blocked,
            lease: LEASE,
            session: false,
            once: false,
            wait: None,
            limit: EXCLUSIVE,
        },
        invoked: invoked * MS,
        answered: answered * MS,
        unread: 0,
        answer,
    }
}

fn grant(client: usize, invoked: Micros, answered: Micros, token: i64) -> Call {
    ask(client, invoked, answered, Answer::Granted(Some(token)))
}

fn release(client: usize, invoked: Micros, answer: Answer) -> Call {
    Call {
        request: Request::Release { token: None },
        ..ask(client, invoked, invoked + 1, answer)
    }
}

fn sight(at: Micros, holder: Option<usize>, queue: &[usize]) -> Sight {
    shared_sight(at, holder.as_slice(), queue)
}

fn shared_sight(at: Micros, holders: &[usize], queue: &[usize]) -> Sight {
    Sight {
        lock: 0,
        from: at * MS,
        to: at * MS + 1,
        holders: holders.to_vec(),
        queue: queue.to_vec(),
    }
}

fn fault(harm: Harm, from: Micros, to: Micros) -> Fault {
    Fault {
        harm,
        from: from * MS,
        to: to * MS,
    }
}

/// The server was killed, and nothing of its data may be there when it is started again.
fn all_lost(from: Micros, to: Micros) -> Fault {
    let lost_since = Some(0);
    fault(Harm::Kill { lost_since }, from, to)
}

fn cancel(client: usize, owner: usize, invoked: Micros, answer: Answer) -> Call {
    Call {
        request: Request::Cancel { owner },
        attempt: 0,
        ..ask(client, invoked, invoked + 1, answer)
    }
}

/// As a client that polls asks.
fn polling(call: Call) -> Call {
    Call {
        request: Request::Acquire {
            way: Way::Polling,
            lease: LEASE,
            session: false,
            once: true,
            wait: None,
            limit: EXCLUSIVE,
        },
        ..call
    }
}

/// The call with another lease, milliseconds.
fn with_lease(mut call: Call, ms: Micros) -> Call {
    if let Request::Acquire { lease, .. } = &mut call.request {
        *lease = ms * MS;
    }
    call
}

/// The call with SHARED and a limit.
fn sharing(mut call: Call, most: Limit) -> Call {
    if let Request::Acquire { limit, .. } = &mut call.request {
        *limit = most;
    }
    call
}

/// The call with WAIT, milliseconds.
fn with_wait(mut call: Call, ms: Micros) -> Call {
    if let Request::Acquire { wait, .. } = &mut call.request {
        *wait = Some(ms * MS);
    }
    call
}

/// A reply that was there some milliseconds before the client read it.
fn read_late(call: Call, ms: Micros) -> Call {
    Call {
        unread: ms * MS,
        ..call
    }
}

fn stall(from: Micros, to: Micros) -> Stall {
    Stall {
        from: from * MS,
        to: to * MS,
    }
}

fn history(calls: Vec<Call>, sights: Vec<Sight>, faults: Vec<Fault>) -> History {
    History {
        calls,
        sights,
        faults,
        turn: 3000 * MS,
        ..History::default()
    }
}

/// Whether it is this waiter that was overtaken, by this client.
fn overtaken(found: &Violation, one: usize, other: usize) -> bool {
    matches!(found, Violation::Overtaken { waiter, by, .. } if [*waiter, *by] == [one, other])
}

/// Found, and nothing else.
#[track_caller]
fn is_found(history: &History, is: fn(&Violation) -> bool) {
    let found = check(history);
    assert!(found.len() == 1 && is(&found[0]), "{found:?}");
}

/// Found, and not when there is such a fault.
#[track_caller]
fn found_unless(history: &History, is: fn(&Violation) -> bool, excuse: Fault) {
    is_found(history, is);
    let mut excused = history.clone();
    excused.faults.push(excuse);
    assert_eq!(check(&excused), []);
}

/// Found, and not where the machine stood still for such a time.
#[track_caller]
fn found_unless_stalled(history: &History, is: fn(&Violation) -> bool, stall: Stall) {
    is_found(history, is);
    let mut excused = history.clone();
    excused.stalls.push(stall);
    assert_eq!(check(&excused), []);
}

#[test]
fn nothing_is_found_where_all_is_well() {
    let calls = vec![
        grant(1, 0, 1, 10),
        release(1, 20, Answer::Left(0)),
        grant(2, 5, 21, 11),
        release(2, 40, Answer::Left(0)),
        grant(3, 6, 41, 12),
        release(3, 60, Answer::Left(0)),
    ];
    let sights = vec![
        sight(10, Some(1), &[2, 3]),
        sight(30, Some(2), &[3]),
        sight(50, Some(3), &[]),
    ];
    assert_eq!(check(&history(calls, sights, vec![])), []);
}

#[test]
fn unexpected_errors_are_found() {
    let refused = |error: &str| {
        let call = ask(1, 0, 1, Answer::Refused(error.to_owned()));
        check(&history(vec![call], vec![], vec![]))
    };
    let found = refused("ERR what is that");
    assert!(
        matches!(found[..], [Violation::UnexpectedError { .. }]),
        "{found:?}"
    );
    assert_eq!(refused("UNBLOCKED the master has changed"), []);
}

#[test]
fn a_transaction_that_loses_the_lock_is_found_unless_the_clock_was_set() {
    let half = || {
        let error = format!("{HALF_A_TRANSACTION}: ...");
        vec![ask(1, 10, 11, Answer::Refused(error))]
    };
    let step = fault(Harm::ClockStep { seconds: -5 }, 10, 12);
    let found = check(&history(half(), vec![], vec![]));
    assert!(
        matches!(found[..], [Violation::UnexpectedError { .. }]),
        "{found:?}"
    );
    assert_eq!(check(&history(half(), vec![], vec![step])), []);
}

#[test]
fn keys_that_are_left_behind_are_found() {
    let history = History {
        left_behind: vec!["redisson_lock_timeout:{lock0}".to_owned()],
        ..History::default()
    };
    let found = check(&history);
    assert!(matches!(found[..], [Violation::LeftBehind(_)]), "{found:?}");
}
