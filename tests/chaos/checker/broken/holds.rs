//! Holders, hold counts and tokens.

use super::{
    Violation, all_lost, check, fault, found_unless, found_unless_stalled, grant, history, release,
    stall,
};
use crate::history::{Answer, Harm, Part, Request};

#[test]
fn two_holders_are_found() {
    let calls = vec![
        grant(1, 0, 1, 10),
        grant(2, 2, 30, 11),
        release(1, 50, Answer::Left(0)),
        release(2, 60, Answer::Left(0)),
    ];
    found_unless(
        &history(calls, vec![], vec![]),
        |found| {
            matches!(
                found,
                Violation::TwoHolders {
                    clients: [1, 2],
                    ..
                }
            )
        },
        fault(
            Harm::Delete {
                lock: 0,
                key: Part::Lock,
            },
            20,
            21,
        ),
    );
}

#[test]
fn a_holder_whose_lease_may_have_ended_is_no_witness() {
    let calls = vec![
        grant(1, 0, 1, 10),
        grant(2, 2, 3000, 11),
        release(1, 3050, Answer::NotHeld),
        release(2, 3060, Answer::Left(0)),
    ];
    assert_eq!(check(&history(calls, vec![], vec![])), []);
}

#[test]
fn a_session_is_held_beyond_its_lease() {
    let mut first = grant(1, 0, 1, 10);
    if let Request::Acquire { session, .. } = &mut first.request {
        *session = true;
    }
    let calls = vec![
        first,
        grant(2, 2, 9000, 11),
        release(1, 9050, Answer::Left(0)),
        release(2, 9060, Answer::Left(0)),
    ];
    found_unless(
        &history(calls, vec![], vec![]),
        |found| matches!(found, Violation::TwoHolders { .. }),
        fault(Harm::ClientKill { client: 1 }, 20, 21),
    );
}

#[test]
fn a_holder_that_was_robbed_is_found() {
    let calls = vec![grant(1, 0, 1, 10), release(1, 20, Answer::NotHeld)];
    found_unless(
        &history(calls, vec![], vec![]),
        |found| matches!(found, Violation::Robbed { client: 1, .. }),
        fault(Harm::FlushAll, 10, 11),
    );
}

#[test]
fn a_lock_that_a_restart_has_lost_is_found_unless_it_may_lose_it() {
    let calls = vec![grant(1, 0, 1, 10), release(1, 400, Answer::NotHeld)];
    let kept = fault(Harm::Kill { lost_since: None }, 100, 300);
    found_unless(
        &history(calls, vec![], vec![kept]),
        |found| matches!(found, Violation::Robbed { .. }),
        all_lost(100, 300),
    );
}

#[test]
fn a_hold_too_many_is_found() {
    let calls = vec![
        grant(1, 0, 1, 10),
        grant(1, 2, 3, 10),
        release(1, 20, Answer::Left(2)),
        release(1, 30, Answer::Left(0)),
    ];
    let found = check(&history(calls, vec![], vec![]));
    assert!(
        matches!(
            found[..],
            [
                Violation::WrongHolds {
                    left: 2,
                    expected: 1,
                    ..
                },
                ..
            ]
        ),
        "{found:?}"
    );
}

#[test]
fn a_token_that_does_not_grow_is_found() {
    for token in [9, 10] {
        let calls = vec![
            grant(1, 0, 1, 10),
            release(1, 20, Answer::Left(0)),
            grant(2, 30, 31, token),
            release(2, 40, Answer::Left(0)),
        ];
        found_unless(
            &history(calls, vec![], vec![]),
            |found| matches!(found, Violation::TokenNotGrown { after: 10, .. }),
            all_lost(22, 28),
        );
    }
}

#[test]
fn a_token_that_is_read_after_the_kill_that_lost_it_bounds_nothing() {
    let told = |asked| {
        let calls = vec![grant(1, asked, 350, 10), grant(2, 400, 401, 9)];
        check(&history(calls, vec![], vec![all_lost(100, 300)]))
    };
    let is_found = |found: &[Violation]| {
        let mut found = found.iter();
        found.any(|found| matches!(found, Violation::TokenNotGrown { after: 10, .. }))
    };
    assert!(is_found(&told(310)));
    assert!(!is_found(&told(0)));
}

#[test]
fn a_lease_that_ran_while_the_machine_stood_still_may_be_over() {
    let calls = vec![grant(1, 0, 4100, 10), release(1, 4200, Answer::NotHeld)];
    found_unless_stalled(
        &history(calls, vec![], vec![]),
        |found| matches!(found, Violation::Robbed { .. }),
        stall(10, 4050),
    );
}
