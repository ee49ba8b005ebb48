//! Histories in which a place in the queue was lost, so that no client was overtaken; beside each, the same history
//! with the place kept.

use super::{
    LEASE, ask, cancel, check, fault, grant, history, is_found, overtaken, polling, read_late,
    release, sight, with_lease, with_wait,
};
use crate::history::{Answer, Call, Fault, Harm, History, Part, Request, Way};

/// Client 1 is ahead of client 2 in the queue after ten milliseconds, and does what is given; client
/// 2 is served first.
fn served_last(ones: Vec<Call>, faults: Vec<Fault>) -> History {
    let end = ones.last().map_or(0, |call| call.answered) / 1000;
    let twos = [grant(2, 5, 30, 11), release(2, 40, Answer::Left(0))];
    let mut calls = ones;
    calls.extend(twos);
    calls.push(release(1, end + 1, Answer::Left(0)));
    calls.sort_by_key(|call| call.answered);
    history(calls, vec![sight(10, Some(9), &[1, 2])], faults)
}

#[track_caller]
fn is_overtaken(history: &History) {
    is_found(history, |found| overtaken(found, 1, 2));
}

#[test]
fn a_waiter_that_is_told_late_lost_its_place_when_it_was_taken_out_and_not_before() {
    // The server has done it before the CANCEL; the client reads it afterwards.
    let late = polling(ask(1, 4, 20, Answer::NotNow));
    let ones = || {
        vec![
            late.clone(),
            polling(ask(1, 21, 22, Answer::NotNow)),
            polling(grant(1, 49, 50, 12)),
        ]
    };
    is_overtaken(&served_last(ones(), vec![]));
    let mut taken_out = served_last(ones(), vec![]);
    taken_out.calls.push(cancel(3, 1, 12, Answer::Done));
    taken_out.calls.sort_by_key(|call| call.answered);
    assert_eq!(check(&taken_out), []);
}

#[test]
fn a_waiter_may_have_been_taken_out_by_one_that_never_heard_of_it() {
    let ones = vec![
        polling(ask(1, 4, 5, Answer::NotNow)),
        polling(ask(1, 40, 41, Answer::NotNow)),
        polling(grant(1, 49, 50, 12)),
    ];
    let mut history = served_last(ones, vec![]);
    // It was read after the connection had been given up.
    history.calls.insert(0, cancel(3, 1, 1, Answer::Lost));
    assert_eq!(check(&history), []);
    history.calls[0].answer = Answer::Refused("READONLY".to_owned());
    is_overtaken(&history);
}

#[test]
fn a_waiter_that_is_refused_and_comes_back_after_its_turn_has_lost_its_place() {
    let back_at = |back| {
        let ones = vec![
            polling(ask(1, 4, 5, Answer::NotNow)),
            polling(ask(1, 12, 13, Answer::Refused("OOM".to_owned()))),
            polling(grant(1, back, back + 1, 12)),
        ];
        served_last(ones, vec![])
    };
    is_overtaken(&back_at(50));
    assert_eq!(check(&back_at(1600)), []);
}

#[test]
fn a_waiter_that_a_replica_refuses_is_not_back_in_the_queue() {
    let refused = |error: &str| Answer::Refused(error.to_owned());
    let back_at = |back| {
        let ones = vec![
            ask(1, 4, 12, refused("UNBLOCKED it is a replica now")),
            ask(1, 14, 15, refused("READONLY ask the master")),
            grant(1, back, back + 20, 12),
        ];
        served_last(ones, vec![fault(Harm::Failover, 11, 13)])
    };
    is_overtaken(&back_at(20));
    // Half a turn after the failover its place is no longer kept.
    assert_eq!(check(&back_at(2000)), []);
}

#[test]
fn a_place_is_kept_from_the_promotion_on_and_not_until_the_old_master_follows() {
    let back_at = |back| {
        let ones = vec![
            polling(ask(1, 4, 5, Answer::NotNow)),
            polling(grant(1, back, back + 20, 12)),
        ];
        served_last(ones, vec![fault(Harm::Failover, 11, 2000)])
    };
    is_overtaken(&back_at(1000));
    assert_eq!(check(&back_at(3000)), []);
}

#[test]
fn a_poller_that_listens_while_the_server_restarts_has_to_come_back_in_time() {
    for harm in [Harm::Kill { lost_since: None }, Harm::Failover] {
        let back_at = |back| {
            let ones = vec![
                polling(ask(1, 4, 5, Answer::NotNow)),
                polling(grant(1, back, back + 20, 12)),
            ];
            served_last(ones, vec![fault(harm, 11, 13)])
        };
        is_overtaken(&back_at(20));
        assert_eq!(check(&back_at(2000)), []);
    }
}

#[test]
fn a_wait_that_was_over_when_the_server_was_killed_has_left_the_queue() {
    let pause = fault(Harm::Pause, 5, 400);
    let kill = fault(Harm::Kill { lost_since: None }, 401, 500);
    let lost = ask(1, 4, 402, Answer::Lost);
    let waited = |lost| served_last(vec![lost, grant(1, 510, 560, 12)], vec![pause, kill]);
    is_overtaken(&waited(with_wait(lost.clone(), 500)));
    assert_eq!(check(&waited(with_wait(lost, 300))), []);
}

#[test]
fn a_waiter_may_have_had_the_lock_and_lost_it_while_the_server_restarted() {
    let kill = fault(Harm::Kill { lost_since: None }, 11, 600);
    let ones = |lease| {
        vec![
            with_lease(ask(1, 4, 12, Answer::Lost), lease),
            with_lease(grant(1, 610, 620, 12), lease),
        ]
    };
    is_overtaken(&served_last(ones(LEASE / 1000), vec![kill]));
    // The lease was over before it could ask again, and so it joined the end of the queue.
    assert_eq!(check(&served_last(ones(400), vec![kill])), []);
    let broken = fault(
        Harm::Break {
            lock: 0,
            client: None,
        },
        602,
        603,
    );
    let faults = vec![kill, broken];
    assert_eq!(check(&served_last(ones(LEASE / 1000), faults)), []);
}

#[test]
fn scripts_may_drop_a_poller_until_it_has_asked_at_the_new_master() {
    let ones = vec![
        polling(ask(1, 4, 5, Answer::NotNow)),
        polling(ask(1, 25, 28, Answer::NotNow)),
        polling(grant(1, 49, 50, 12)),
    ];
    let mut history = served_last(ones, vec![fault(Harm::Failover, 6, 8)]);
    is_overtaken(&history);
    history.scripted = vec![0];
    for at in [10, 27] {
        history.sights = vec![sight(at, Some(9), &[1, 2])];
        assert_eq!(check(&history), [], "{at}");
    }
    // From then on its place is kept.
    history.sights = vec![sight(29, Some(9), &[1, 2])];
    is_overtaken(&history);
}

#[test]
fn a_poller_has_no_place_in_a_queue_that_was_deleted() {
    let ones = || {
        vec![
            polling(ask(1, 4, 5, Answer::NotNow)),
            polling(grant(1, 49, 50, 12)),
        ]
    };
    let delete = Harm::Delete {
        lock: 0,
        key: Part::Queue,
    };
    for harm in [Harm::FlushAll, delete] {
        let wiped = fault(harm, 12, 13);
        assert_eq!(check(&served_last(ones(), vec![wiped])), []);
        // The connection of a blocked waiter proves that it waits: it is put back.
        is_overtaken(&served_last(vec![grant(1, 4, 50, 12)], vec![wiped]));
    }
}

/// Client 2 is served by a script, which leaves no token to compare.
fn served_after_a_script(one: Call) -> History {
    let mut history = served_last(vec![one], vec![]);
    for call in &mut history.calls {
        if let (2, Request::Acquire { way, .. }) = (call.client, &mut call.request) {
            *way = Way::Script;
            call.answer = Answer::Granted(None);
        }
    }
    history
}

#[test]
fn beside_scripts_a_slow_reader_may_have_been_served_first() {
    let one = grant(1, 4, 700, 12);
    is_overtaken(&served_after_a_script(one.clone()));
    assert_eq!(check(&served_after_a_script(read_late(one, 690))), []);
}

#[test]
fn beside_scripts_a_short_lease_may_be_over_before_its_holder_is_told() {
    let one = grant(1, 4, 700, 12);
    is_overtaken(&served_after_a_script(one.clone()));
    assert_eq!(check(&served_after_a_script(with_lease(one, 400))), []);
}
