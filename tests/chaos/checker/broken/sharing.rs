//! Locks with several holders.

use super::{
    Violation, all_lost, ask, check, fault, found_unless, grant, history, is_found, overtaken,
    polling, release, shared_sight, sharing, sight,
};
use crate::history::{ANY, Answer, Call, EXCLUSIVE, Fault, Harm, History, Limit, Micros};

fn reader(client: usize, invoked: Micros, answered: Micros, token: i64) -> Call {
    sharing(grant(client, invoked, answered, token), ANY)
}

fn freed(client: usize, invoked: Micros) -> Call {
    release(client, invoked, Answer::Left(0))
}

fn break_one(client: usize, at: Micros) -> Fault {
    let client = Some(client);
    fault(Harm::Break { lock: 0, client }, at, at + 1)
}

#[test]
fn readers_that_share_a_lock_are_well() {
    let calls = vec![
        reader(1, 0, 1, 10),
        reader(2, 2, 3, 11),
        sharing(grant(3, 4, 5, 12), 3),
        freed(1, 40),
        freed(2, 50),
        freed(3, 60),
        grant(4, 10, 61, 13),
        freed(4, 70),
    ];
    let sights = vec![
        shared_sight(20, &[1, 2, 3], &[4]),
        shared_sight(45, &[2, 3], &[4]),
        shared_sight(65, &[4], &[]),
    ];
    assert_eq!(check(&history(calls, sights, vec![])), []);
}

#[test]
fn a_writer_beside_a_reader_is_found() {
    let calls = vec![
        reader(1, 0, 1, 10),
        grant(2, 2, 30, 11),
        freed(1, 50),
        freed(2, 60),
    ];
    // Of another holder, it excuses nothing.
    found_unless(
        &history(calls, vec![], vec![break_one(3, 20)]),
        |found| {
            matches!(
                found,
                Violation::TwoHolders {
                    clients: [1, 2],
                    ..
                }
            )
        },
        break_one(1, 20),
    );
}

#[test]
fn a_holder_more_than_one_of_them_tolerates_is_found() {
    let calls = vec![
        sharing(grant(1, 0, 1, 10), 2),
        reader(2, 2, 3, 11),
        reader(3, 4, 30, 12),
        freed(1, 50),
        freed(2, 60),
        freed(3, 70),
    ];
    found_unless(
        &history(calls, vec![], vec![]),
        |found| matches!(found, Violation::TooManyHolders { clients, limit: 2, .. } if clients[..] == [1, 2, 3]),
        break_one(2, 20),
    );
}

#[test]
fn a_newcomer_that_does_not_tolerate_those_that_are_there_is_found() {
    let calls = vec![
        reader(1, 0, 1, 10),
        reader(2, 2, 3, 11),
        sharing(grant(3, 4, 30, 12), 2),
        freed(1, 50),
        freed(2, 60),
        freed(3, 70),
    ];
    found_unless(
        &history(calls, vec![], vec![]),
        |found| matches!(found, Violation::TooManyHolders { limit: 2, .. }),
        fault(Harm::FlushAll, 20, 21),
    );
}

#[test]
fn holders_that_do_not_tolerate_each_other_are_found_in_the_keys() {
    // By the replies there was one after the other.
    let found_with = |limit| {
        let calls = vec![
            reader(1, 0, 100, 10),
            freed(1, 150),
            sharing(grant(2, 2, 200, 11), limit),
            freed(2, 250),
        ];
        check(&history(
            calls,
            vec![shared_sight(10, &[1, 2], &[])],
            vec![],
        ))
    };
    assert_eq!(found_with(2), []);
    let found = found_with(EXCLUSIVE);
    assert!(
        matches!(found[..], [Violation::TooManyHolders { limit: 1, .. }]),
        "{found:?}"
    );
}

/// Whether it is this waiter that was kept waiting, by this newcomer.
fn barged(found: &Violation, one: usize, other: usize) -> bool {
    matches!(found, Violation::Barged { waiter, by, .. } if [*waiter, *by] == [one, other])
}

/// A reader holds the lock, a writer waits, and another reader that asks then is served first.
fn starved(holders: &[usize], queue: &[usize]) -> History {
    let calls = vec![
        reader(1, 0, 1, 10),
        reader(3, 20, 21, 11),
        freed(3, 30),
        freed(1, 35),
        grant(2, 5, 40, 12),
        freed(2, 50),
    ];
    history(calls, vec![shared_sight(10, holders, queue)], vec![])
}

#[test]
fn a_writer_that_starves_is_found() {
    found_unless(
        &starved(&[1], &[2]),
        |found| barged(found, 2, 3),
        all_lost(12, 13),
    );
}

#[test]
fn a_reader_that_was_there_before_the_writer_does_not_starve_it() {
    // It asks again, or had its place.
    assert_eq!(check(&starved(&[1, 3], &[2])), []);
    assert_eq!(check(&starved(&[1], &[3, 2])), []);
    // The writer joined after it.
    assert_eq!(check(&starved(&[1], &[])), []);
}

#[test]
fn a_reader_whose_place_is_put_back_does_not_starve_the_writer() {
    let mut dropped = starved(&[1], &[2]);
    let mut first = reader(3, 6, 7, 0);
    first.answer = Answer::NotNow;
    dropped.calls.insert(1, first);
    dropped.sights.insert(0, shared_sight(8, &[1], &[3, 2]));
    assert_eq!(check(&dropped), []);
    // It was there before, but for another attempt.
    dropped.calls[1].attempt += 1;
    is_found(&dropped, |found| barged(found, 2, 3));
}

#[test]
fn a_writer_that_was_taken_out_has_lost_its_place() {
    let mut taken_out = starved(&[1], &[2]);
    let cancel = super::cancel(4, 2, 12, Answer::Done);
    taken_out.calls.push(cancel);
    taken_out.calls.sort_by_key(|call| call.answered);
    assert_eq!(check(&taken_out), []);
}

#[test]
fn an_exclusive_newcomer_that_is_served_first_is_found() {
    let calls = vec![
        grant(3, 20, 21, 11),
        freed(3, 30),
        reader(2, 5, 40, 12),
        freed(2, 50),
    ];
    is_found(
        &history(calls, vec![sight(10, Some(9), &[2])], vec![]),
        |found| barged(found, 2, 3),
    );
}

#[test]
fn a_reader_that_overtakes_a_writer_in_the_queue_is_found() {
    let calls = vec![
        reader(3, 5, 20, 11),
        freed(3, 30),
        grant(2, 4, 31, 12),
        freed(2, 40),
    ];
    found_unless(
        &history(calls, vec![sight(10, Some(9), &[2, 3])], vec![]),
        |found| overtaken(found, 2, 3),
        all_lost(12, 13),
    );
}

/// For 0.9 seconds client 2 is the head, blocked, and the holder tolerates others.
fn waits_beside_a_reader(waiter: Limit, holders: &[usize]) -> History {
    let calls = vec![
        reader(1, 0, 1, 10),
        reader(3, 0, 2, 11),
        freed(3, 950),
        freed(1, 960),
        sharing(grant(2, 5, 1000, 12), waiter),
        freed(2, 1050),
    ];
    let sights = [10, 900].map(|at| shared_sight(at, holders, &[2]));
    history(calls, sights.to_vec(), vec![])
}

#[test]
fn a_waiter_that_the_holders_have_room_for_is_found() {
    for (limit, holders) in [(ANY, &[1, 3][..]), (3, &[1, 3]), (2, &[1])] {
        found_unless(
            &waits_beside_a_reader(limit, holders),
            |found| matches!(found, Violation::Stalled { waiter: 2, .. }),
            fault(Harm::OutOfMemory, 20, 800),
        );
    }
}

#[test]
fn a_waiter_that_the_holders_have_no_room_for_waits() {
    for (limit, holders) in [(EXCLUSIVE, &[1][..]), (2, &[1, 3]), (ANY, &[1, 9])] {
        let found = check(&waits_beside_a_reader(limit, holders));
        assert_eq!(found, [], "{limit} {holders:?}");
    }
}

#[test]
fn a_polling_waiter_that_has_room_now_and_then_may_take_its_time() {
    let mut history = waits_beside_a_reader(ANY, &[1]);
    for call in history.calls.iter_mut().filter(|call| call.client == 2) {
        if matches!(call.answer, Answer::Granted(_)) {
            *call = sharing(polling(call.clone()), ANY);
        }
    }
    history.sights = vec![shared_sight(10, &[1], &[2]), shared_sight(6000, &[1], &[2])];
    assert_eq!(check(&history), []);
}

#[test]
fn a_reader_that_asks_again_has_the_token_that_it_had() {
    let calls = vec![
        reader(1, 0, 1, 10),
        reader(2, 2, 3, 11),
        reader(1, 5, 6, 10),
        release(1, 20, Answer::Left(1)),
        freed(1, 22),
        freed(2, 30),
    ];
    assert_eq!(check(&history(calls, vec![], vec![])), []);
}

#[test]
fn a_readers_token_that_does_not_grow_is_found() {
    let calls = vec![reader(1, 2, 3, 10), reader(2, 5, 6, 9)];
    found_unless(
        &history(calls.clone(), vec![], vec![]),
        |found| matches!(found, Violation::TokenNotGrown { after: 10, .. }),
        fault(Harm::HalfOpen { client: 2 }, 0, 1),
    );
    // It has had it for a while, and was not told.
    let lost = sharing(ask(2, 0, 1, Answer::Lost), ANY);
    let calls = [vec![lost], calls].concat();
    assert_eq!(check(&history(calls, vec![], vec![])), []);
}

#[test]
fn a_reader_that_is_robbed_when_another_leaves_is_found() {
    let calls = vec![
        reader(1, 0, 1, 10),
        reader(2, 2, 3, 11),
        freed(2, 10),
        release(1, 20, Answer::NotHeld),
    ];
    found_unless(
        &history(calls, vec![], vec![break_one(2, 5)]),
        |found| matches!(found, Violation::Robbed { client: 1, .. }),
        break_one(1, 15),
    );
}

#[test]
fn a_second_holder_that_was_not_told_is_found() {
    let sights = [10, 900].map(|at| shared_sight(at, &[9, 1], &[]));
    let calls = vec![reader(1, 0, 1000, 10), freed(1, 1001)];
    found_unless(
        &history(calls, sights.to_vec(), vec![]),
        |found| matches!(found, Violation::LostGrant { client: 1, .. }),
        fault(Harm::Pause, 20, 800),
    );
}

#[test]
fn a_lock_that_is_shared_with_a_closed_connection_is_found() {
    let kill = fault(Harm::ClientKill { client: 1 }, 20, 21);
    let sights = vec![shared_sight(30, &[2], &[1]), shared_sight(40, &[2, 1], &[])];
    let calls = vec![sharing(ask(1, 0, 22, Answer::Lost), ANY)];
    found_unless(
        &history(calls, sights, vec![kill]),
        |found| matches!(found, Violation::GivenToAbsent { client: 1, .. }),
        fault(Harm::Pause, 10, 21),
    );
}
