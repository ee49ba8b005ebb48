//! What the drivers have found so far, each the shortest way to a promise that was broken once.

use super::action::{Action, Request, Script, Step};
use super::scope::{
    BLOCKING, CLOCK, Kind, LARGE, MIXED, READERS, SCRIPTS, SESSIONS, Scope, UPGRADES, Wait,
};
use super::world::World;
use crate::lock::scripts::Sleep;

/// Reads a step: an owner, on its second connection if a 1 follows; what it does; how.
fn step(text: &str) -> Step {
    let words: Vec<&str> = text.split_whitespace().collect();
    let has = |word| words.contains(&word);
    let number = |name: &str| {
        let found = words.iter().find_map(|word| word.strip_prefix(name));
        found.map(|number| number.parse::<i64>().expect("a number"))
    };
    let owner = usize::from(words[0].as_bytes()[0] - b'A');
    let slot = usize::from(words[0].ends_with('1'));
    let lease = number("lease=").unwrap_or(2).unsigned_abs();
    let ask = |wait| {
        Action::Acquire(Request {
            owner,
            slot,
            wait,
            limit: number("limit=").map_or(1, |limit| limit.try_into().expect("a limit")),
            lease,
            patience: 3,
            once: has("once"),
            keeps: false,
            session: has("session"),
        })
    };
    let action = match *words.get(1).unwrap_or(&words[0]) {
        "blocks" => ask(Wait::Block),
        "polls" => ask(Wait::Poll),
        "tries" => ask(Wait::Try),
        "releases" => Action::Release {
            owner,
            slot,
            token: None,
            all: false,
        },
        "renews" => Action::Renew(owner, lease),
        "leaves" => Action::TimeOut(owner, slot),
        "closes" => Action::Close(owner, slot),
        "leaves_by_script" => Action::LeaveByScript(owner),
        "asks_by_script" => Action::LockByScript(Script {
            owner,
            lease,
            wait: (!has("full")).then_some((2, Sleep::Lease)),
            skew: number("skew=").unwrap_or(0),
            memory_is_full: has("full"),
        }),
        "is_far" => Action::SetScore(owner, 1 << 40),
        "silence" => Action::Silence(1),
        "late" => Action::Late,
        "delete" => Action::Delete,
        "restart" => Action::Restart,
        other => match (other.split_once('='), number("sleep="), number("clock=")) {
            (_, Some(time), _) => Action::Silence(time.unsigned_abs()),
            (_, _, Some(by)) => Action::SetClock(by),
            (Some(("expiry", at)), ..) => Action::SetExpiry(at.parse().expect("a time")),
            _ => panic!("{text}"),
        },
    };
    Step {
        action,
        undelivered: has("in_vain"),
    }
}

/// Takes these steps, each of which is checked as in the search.
#[track_caller]
fn after(scope: &Scope, steps: &str) -> World {
    let mut world = World::new(scope);
    for text in steps.split(';') {
        world = match world.after(step(text)) {
            Ok((world, _)) => world,
            Err(broken) => panic!("{text}: {broken}"),
        };
    }
    world
}

/// Who holds the lock then, as often as it does.
#[track_caller]
fn holders(scope: &Scope, steps: &str) -> String {
    let world = after(scope, steps);
    let names = ["A", "B", "C", "D"].iter().enumerate();
    let holds = names.map(|(owner, name)| {
        let holds = world.oracle.holds(owner);
        name.repeat(holds.try_into().expect("a few"))
    });
    holds.collect()
}

#[test]
fn a_hand_off_that_nobody_got_takes_no_other_hold_with_it() {
    let steps = "A blocks; B blocks; A releases in_vain; B1 blocks; silence";
    assert_eq!(holders(&BLOCKING, steps), "B");
    let steps = "A blocks; B blocks session; A releases in_vain; B1 blocks session; silence";
    let world = after(&SESSIONS, steps);
    let connection = world.oracle.slots[1][1].connection;
    assert_eq!(world.oracle.holds_of(connection), 1);
}

#[test]
fn a_hand_off_that_its_owner_has_asked_about_since_stands() {
    let steps = "A blocks; B blocks; A releases in_vain; B1 blocks once; silence";
    assert_eq!(holders(&MIXED, steps), "B");
}

#[test]
fn a_waiter_that_leaves_twice_is_counted_once() {
    let steps = "A blocks; B blocks; B leaves; B blocks; B leaves; silence";
    after(&BLOCKING, steps);
}

#[test]
fn a_lease_that_ends_before_a_command_that_changes_nothing_is_acted_on() {
    let steps = "A blocks; silence; silence; B blocks; late; A releases; silence";
    assert_eq!(holders(&BLOCKING, steps), "B");
}

#[test]
fn a_head_lives_through_the_millisecond_of_its_score() {
    let steps = "A blocks; C asks_by_script; silence; silence; A releases; D asks_by_script;
        silence; C asks_by_script; silence; delete; C asks_by_script";
    after(&SCRIPTS, steps);
}

#[test]
fn a_clock_that_is_set_ahead_does_not_expose_the_head() {
    after(&CLOCK, "A blocks; B polls; A releases; clock=4");
}

#[test]
fn a_waiter_that_asks_for_more_is_served_as_it_asked_before() {
    let steps = "B blocks limit=2 lease=1; silence; C blocks limit=0 lease=1;
        A blocks limit=0 lease=1; late; A1 tries lease=1";
    assert_eq!(holders(&UPGRADES, steps), "AC");
}

#[test]
fn a_dead_writer_keeps_no_reader_from_joining_others() {
    let steps = "A blocks limit=0; C polls; silence; A renews; silence; A renews; silence;
        B tries limit=0";
    assert_eq!(holders(&READERS, steps), "AB");
    let steps = "A blocks limit=0; C polls; silence; B blocks limit=0; A renews; silence;
        A renews; late; C releases; silence";
    assert_eq!(holders(&READERS, steps), "AB");
    let steps = "A blocks limit=0; C blocks; C leaves; B tries limit=0";
    assert_eq!(holders(&READERS, steps), "AB");
}

#[test]
fn a_row_of_readers_is_served_at_once_and_none_overtakes_a_writer() {
    let four = Scope {
        owners: &[Kind::READER, Kind::READER, Kind::EXCLUSIVE, Kind::EXCLUSIVE],
        ..READERS
    };
    let steps = "C blocks; A blocks limit=0; B blocks limit=0; D blocks; C releases";
    assert_eq!(holders(&four, steps), "AB");
    let steps = "A blocks limit=0; C blocks; B blocks limit=0; A releases";
    assert_eq!(holders(&four, steps), "C");
}

#[test]
fn two_holders_that_rely_on_one_connection_both_end_with_it() {
    let steps = "A1 tries limit=0 session lease=1000; B1 tries limit=0 session lease=1000;
        C1 tries limit=0 session lease=1000; A1 releases; B1 closes; silence";
    assert_eq!(holders(&LARGE, steps), "");
}

#[test]
fn a_session_lives_on_although_its_lease_was_cut_short() {
    let steps = "A tries limit=0 session lease=1000; B tries limit=0 lease=1000; expiry=10;
        silence; sleep=3000";
    assert_eq!(holders(&LARGE, steps), "A");
    // Another session's lease ends as early, and is not short.
    let steps = "A tries limit=0 session lease=10; B tries limit=0 session lease=100; expiry=10;
        silence; sleep=3000";
    assert_eq!(holders(&LARGE, steps), "AB");
}

#[test]
fn a_session_lives_on_although_another_lease_ends_as_early_when_the_clock_is_set_ahead() {
    let steps = "A tries limit=0; B tries limit=0 session; clock=2; silence; silence";
    assert_eq!(holders(&LARGE, steps), "B");
}

#[test]
fn an_owner_that_is_back_before_its_closed_connection_is_swept_keeps_its_place() {
    // The holder is alone, or tolerates one more, or any number.
    for limit in [1, 2, 0] {
        for again in ["polls", "asks_by_script"] {
            let steps = format!("A tries limit={limit}; B blocks; C blocks; B leaves; B {again}");
            let queue = after(&LARGE, &steps).oracle.queue;
            let queue: Vec<usize> = queue.iter().map(|of| of.owner).collect();
            assert_eq!(queue, [1, 2], "{steps}");
        }
    }
}

#[test]
fn a_script_is_refused_without_memory_if_it_would_write_and_only_then() {
    let steps = "A tries; B blocks; B leaves; delete; C asks_by_script full";
    assert_eq!(holders(&LARGE, steps), "");
    let steps =
        "A tries; B polls; restart; sleep=5; delete; silence; C asks_by_script full skew=2494";
    assert_eq!(after(&LARGE, steps).oracle.queue.len(), 1);
}

#[test]
fn a_score_that_another_client_has_set_far_off_is_set_right_and_a_blocked_waiters_not_too_often() {
    let world = after(&LARGE, "A tries; B blocks; B is_far; silence");
    let ahead = world.state.queue[0].1.score - world.now.millis();
    assert_eq!(ahead, 1_002);
}
