//! Waiters that are not served, not told, or told too late.

use super::{
    MS, Violation, ask, check, fault, found_unless, found_unless_stalled, grant, history, release,
    sight, stall, with_wait,
};
use crate::history::{Answer, Call, Harm, Request};

#[test]
fn a_grant_that_was_not_told_is_found() {
    let calls = vec![grant(1, 0, 1000, 10), release(1, 1001, Answer::Left(0))];
    let sights = vec![sight(10, Some(1), &[]), sight(900, Some(1), &[])];
    found_unless(
        &history(calls, sights, vec![]),
        |found| matches!(found, Violation::LostGrant { client: 1, .. }),
        fault(Harm::Pause, 20, 800),
    );
}

#[test]
fn a_reader_that_is_slow_was_told_in_time() {
    let slow = Call {
        unread: 990 * MS,
        ..grant(1, 0, 1000, 10)
    };
    let sights = vec![sight(10, Some(1), &[]), sight(900, Some(1), &[])];
    let calls = vec![slow, release(1, 1001, Answer::Left(0))];
    assert_eq!(check(&history(calls, sights, vec![])), []);
}

#[test]
fn a_free_lock_that_is_waited_for_is_found() {
    let calls = vec![grant(1, 0, 1000, 10), release(1, 1001, Answer::Left(0))];
    let sights = vec![sight(10, None, &[1]), sight(900, None, &[1])];
    found_unless(
        &history(calls, sights, vec![]),
        |found| matches!(found, Violation::Stalled { waiter: 1, .. }),
        fault(Harm::OutOfMemory, 20, 800),
    );
}

#[test]
fn a_polling_waiter_may_take_a_turn_to_come_and_no_longer() {
    let sights = |end| vec![sight(10, None, &[1]), sight(end, None, &[1])];
    assert_eq!(check(&history(vec![], sights(3000), vec![])), []);
    found_unless(
        &history(vec![], sights(5000), vec![]),
        |found| matches!(found, Violation::Stalled { waiter: 1, .. }),
        fault(Harm::Pause, 4000, 4500),
    );
}

#[test]
fn a_waiter_that_was_forgotten_is_found() {
    let found = check(&history(
        vec![ask(1, 0, 9000, Answer::Never)],
        vec![],
        vec![],
    ));
    assert!(
        matches!(found[..], [Violation::Forgotten { client: 1, .. }]),
        "{found:?}"
    );
}

#[test]
fn a_wait_that_ends_late_is_found() {
    let mut call = ask(1, 0, 3000, Answer::NotNow);
    if let Request::Acquire { wait, .. } = &mut call.request {
        *wait = Some(100 * MS);
    }
    found_unless(
        &history(vec![call], vec![], vec![]),
        |found| matches!(found, Violation::Late { client: 1, .. }),
        fault(Harm::Pause, 0, 2000),
    );
}

#[test]
fn a_lock_that_was_given_to_a_closed_connection_is_found() {
    let kill = fault(Harm::ClientKill { client: 1 }, 20, 21);
    let sights = vec![sight(30, Some(2), &[1]), sight(40, Some(1), &[])];
    let calls = vec![ask(1, 0, 22, Answer::Lost)];
    found_unless(
        &history(calls, sights, vec![kill]),
        |found| matches!(found, Violation::GivenToAbsent { client: 1, .. }),
        fault(Harm::Pause, 10, 19 + 2),
    );
}

#[test]
fn a_machine_that_stands_still_excuses_every_wait() {
    let late = with_wait(ask(1, 0, 4000, Answer::NotNow), 100);
    found_unless_stalled(
        &history(vec![late], vec![], vec![]),
        |found| matches!(found, Violation::Late { .. }),
        stall(200, 3700),
    );
    let held = vec![sight(10, Some(1), &[]), sight(4000, Some(1), &[])];
    found_unless_stalled(
        &history(vec![grant(1, 0, 4100, 10)], held, vec![]),
        |found| matches!(found, Violation::LostGrant { .. }),
        stall(100, 3900),
    );
    let free = vec![sight(10, None, &[1]), sight(4000, None, &[1])];
    found_unless_stalled(
        &history(vec![grant(1, 0, 4100, 10)], free, vec![]),
        |found| matches!(found, Violation::Stalled { .. }),
        stall(100, 3900),
    );
}

#[test]
fn a_time_that_is_lost_twice_is_counted_once() {
    let late = with_wait(ask(1, 0, 4000, Answer::NotNow), 100);
    let mut history = history(vec![late], vec![], vec![fault(Harm::Pause, 0, 1500)]);
    history.stalls = vec![stall(0, 1000), stall(1000, 1500)];
    let found = check(&history);
    assert!(matches!(found[..], [Violation::Late { .. }]), "{found:?}");
}
