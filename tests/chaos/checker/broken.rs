//! Histories that are broken, each in one way, and what is found in them; and beside each the same
//! history with what excuses it.

use super::{Violation, check};
use crate::history::{Answer, Call, Fault, Harm, History, Micros, Part, Request, Sight, Way};

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
            limit: None,
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
        request: Request::Release,
        ..ask(client, invoked, invoked + 1, answer)
    }
}

fn sight(at: Micros, holder: Option<usize>, queue: &[usize]) -> Sight {
    Sight {
        lock: 0,
        from: at * MS,
        to: at * MS + 1,
        holder,
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

fn history(calls: Vec<Call>, sights: Vec<Sight>, faults: Vec<Fault>) -> History {
    History {
        calls,
        sights,
        faults,
        turn: 3000 * MS,
        ..History::default()
    }
}

/// Found, and not when there is such a fault.
#[track_caller]
fn found_unless(history: &History, is: fn(&Violation) -> bool, excuse: Fault) {
    let found = check(history);
    assert!(found.len() == 1 && is(&found[0]), "{found:?}");
    let mut excused = history.clone();
    excused.faults.push(excuse);
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
        fault(
            Harm::Kill {
                lost_since: Some(0),
            },
            100,
            300,
        ),
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
            fault(
                Harm::Kill {
                    lost_since: Some(0),
                },
                22,
                28,
            ),
        );
    }
}

#[test]
fn a_waiter_that_was_overtaken_is_found() {
    let calls = vec![
        grant(2, 5, 20, 11),
        release(2, 30, Answer::Left(0)),
        grant(1, 4, 31, 12),
        release(1, 40, Answer::Left(0)),
    ];
    let sights = vec![sight(10, Some(9), &[1, 2])];
    found_unless(
        &history(calls, sights, vec![]),
        |found| {
            matches!(
                found,
                Violation::Overtaken {
                    waiter: 1,
                    by: 2,
                    ..
                }
            )
        },
        fault(
            Harm::Kill {
                lost_since: Some(0),
            },
            12,
            13,
        ),
    );
}

#[test]
fn a_waiter_that_somebody_took_out_has_lost_its_place() {
    let cancel = Call {
        client: 3,
        request: Request::Cancel { owner: 1 },
        ..ask(3, 12, 13, Answer::Done)
    };
    let polling = |call: Call| Call {
        request: Request::Acquire {
            way: Way::Polling,
            lease: LEASE,
            session: false,
            once: true,
            limit: None,
        },
        ..call
    };
    let calls = vec![
        polling(ask(1, 4, 5, Answer::NotNow)),
        cancel,
        grant(2, 5, 20, 11),
        release(2, 30, Answer::Left(0)),
        polling(grant(1, 14, 31, 12)),
        release(1, 40, Answer::Left(0)),
    ];
    let sights = vec![sight(10, Some(9), &[1, 2])];
    let is_free = |calls: Vec<Call>| check(&history(calls, sights.clone(), vec![]));
    assert_eq!(is_free(calls.clone()), []);
    let others = calls.into_iter().filter(|call| call.client != 3).collect();
    assert!(matches!(
        is_free(others)[..],
        [Violation::Overtaken {
            waiter: 1,
            by: 2,
            ..
        }]
    ));
}

#[test]
fn a_script_that_overtakes_is_found_by_the_replies() {
    let mut script = ask(2, 5, 20, Answer::Granted(None));
    if let Request::Acquire { way, .. } = &mut script.request {
        *way = Way::Script;
    }
    let calls = vec![
        script,
        release(2, 30, Answer::Left(0)),
        grant(1, 4, 31, 12),
        release(1, 40, Answer::Left(0)),
    ];
    let sights = vec![sight(10, Some(9), &[1, 2])];
    found_unless(
        &history(calls, sights, vec![]),
        |found| {
            matches!(
                found,
                Violation::Overtaken {
                    waiter: 1,
                    by: 2,
                    ..
                }
            )
        },
        fault(Harm::Break { lock: 0 }, 15, 16),
    );
}

#[test]
fn who_came_back_on_a_new_connection_has_a_new_place_unless_the_server_went_away() {
    let calls = |back| {
        vec![
            ask(1, 4, 12, Answer::Lost),
            grant(2, 5, 20, 11),
            release(2, 30, Answer::Left(0)),
            grant(1, back, 31, 12),
            release(1, 40, Answer::Left(0)),
        ]
    };
    let sights = vec![sight(10, Some(9), &[1, 2])];
    assert_eq!(check(&history(calls(14), sights.clone(), vec![])), []);
    let kill = fault(Harm::Kill { lost_since: None }, 11, 13);
    found_unless(
        &history(calls(14), sights, vec![kill]),
        |found| {
            matches!(
                found,
                Violation::Overtaken {
                    waiter: 1,
                    by: 2,
                    ..
                }
            )
        },
        fault(Harm::ClientKill { client: 1 }, 10, 11),
    );
}

#[test]
fn a_place_is_gone_if_the_keys_go_before_the_server_knows_who_waits() {
    let calls = vec![
        ask(1, 4, 12, Answer::Lost),
        ask(2, 5, 12, Answer::Lost),
        grant(2, 17, 20, 11),
        release(2, 30, Answer::Left(0)),
        grant(1, 18, 31, 12),
        release(1, 40, Answer::Left(0)),
    ];
    let sights = vec![sight(10, Some(9), &[1, 2])];
    let kill = fault(Harm::Kill { lost_since: None }, 11, 13);
    found_unless(
        &history(calls, sights, vec![kill]),
        |found| {
            matches!(
                found,
                Violation::Overtaken {
                    waiter: 1,
                    by: 2,
                    ..
                }
            )
        },
        fault(Harm::FlushAll, 14, 15),
    );
}

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
    if let Request::Acquire { limit, .. } = &mut call.request {
        *limit = Some(100 * MS);
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
        |found| matches!(found, Violation::GivenToNobody { client: 1, .. }),
        fault(Harm::Pause, 10, 19 + 2),
    );
}

#[test]
fn errors_that_nobody_should_get_are_found() {
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
fn keys_that_are_left_behind_are_found() {
    let history = History {
        left_behind: vec!["redisson_lock_timeout:{lock0}".to_owned()],
        ..History::default()
    };
    let found = check(&history);
    assert!(matches!(found[..], [Violation::LeftBehind(_)]), "{found:?}");
}
