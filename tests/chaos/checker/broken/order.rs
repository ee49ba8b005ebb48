//! First come, first served.

use super::{
    all_lost, ask, cancel, check, fault, found_unless, grant, history, is_found, overtaken,
    polling, release, sight,
};
use crate::history::{Answer, Harm, Request, Way};

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
        |found| overtaken(found, 1, 2),
        all_lost(12, 13),
    );
}

#[test]
fn tokens_tell_no_order_over_a_restart_by_a_clock_that_was_set_back() {
    let calls = vec![
        grant(2, 5, 20, 11),
        release(2, 30, Answer::Left(0)),
        grant(1, 4, 31, 12),
        release(1, 40, Answer::Left(0)),
    ];
    let sights = vec![sight(10, Some(9), &[1, 2])];
    let step = fault(Harm::ClockStep { seconds: -1 }, 11, 12);
    let restart = Harm::Kill { lost_since: None };
    found_unless(
        &history(calls, sights, vec![step]),
        |found| overtaken(found, 1, 2),
        fault(restart, 13, 14),
    );
}

#[test]
fn a_waiter_that_was_cancelled_has_lost_its_place() {
    let calls = vec![
        polling(ask(1, 4, 5, Answer::NotNow)),
        cancel(3, 1, 12, Answer::Done),
        grant(2, 5, 20, 11),
        release(2, 30, Answer::Left(0)),
        polling(grant(1, 14, 31, 12)),
        release(1, 40, Answer::Left(0)),
    ];
    let sights = vec![sight(10, Some(9), &[1, 2])];
    let all = history(calls.clone(), sights.clone(), vec![]);
    assert_eq!(check(&all), []);
    let others = calls.into_iter().filter(|call| call.client != 3).collect();
    is_found(&history(others, sights, vec![]), |found| {
        overtaken(found, 1, 2)
    });
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
        |found| overtaken(found, 1, 2),
        fault(
            Harm::Break {
                lock: 0,
                client: None,
            },
            15,
            16,
        ),
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
        |found| overtaken(found, 1, 2),
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
        |found| overtaken(found, 1, 2),
        fault(Harm::FlushAll, 14, 15),
    );
}
