//! What the search has found so far, each the shortest way to a promise that was broken once.

use super::action::{Action, Request, Script, Step};
use super::scope::{
    BLOCKING, CLOCK, Kind, LARGE, MIXED, READERS, SCRIPTS, SESSIONS, Scope, UPGRADES, Wait,
};
use super::world::World;
use crate::lock::scripts::Sleep;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;

/// Two readers and two writers.
const FOUR: Scope = Scope {
    name: "four",
    owners: &[Kind::READER, Kind::READER, Kind::EXCLUSIVE, Kind::EXCLUSIVE],
    ..READERS
};

/// Takes these steps, each of which is checked as in the search.
#[track_caller]
fn after(scope: &Scope, steps: &[Step]) -> World {
    let mut world = World::new(scope);
    for (number, step) in (1..).zip(steps) {
        world = match world.after(*step) {
            Ok((world, _)) => world,
            Err(broken) => panic!("{number}. {step:?}: {broken}"),
        };
    }
    world
}

fn request(step: &mut Step) -> &mut Request {
    match &mut step.action {
        Action::Acquire(request) => request,
        other => panic!("{other:?}"),
    }
}

fn ask(owner: usize, slot: usize, wait: Wait) -> Step {
    Step::of(Action::Acquire(Request {
        owner,
        slot,
        wait,
        limit: 1,
        lease: 2,
        patience: 3,
        once: false,
        keeps: false,
        session: false,
    }))
}

/// As [`ask`], with SHARED; `limit` 0 is none.
fn share(owner: usize, wait: Wait, limit: u32) -> Step {
    let mut step = ask(owner, 0, wait);
    request(&mut step).limit = limit;
    step
}

fn with(mut step: Step, once: bool, session: bool) -> Step {
    let request = request(&mut step);
    (request.once, request.session) = (once, session);
    step
}

fn script(owner: usize) -> Step {
    Step::of(Action::LockByScript(Script {
        owner,
        lease: 2,
        wait: Some((2, Sleep::Lease)),
        skew: 0,
        memory_is_full: false,
    }))
}

fn release(owner: usize) -> Step {
    Step::of(Action::Release {
        owner,
        slot: 0,
        token: None,
        all: false,
    })
}

fn undelivered(mut step: Step) -> Step {
    step.undelivered = true;
    step
}

const SILENCE: Step = Step {
    action: Action::Silence(1),
    undelivered: false,
};

#[test]
fn a_hand_off_that_nobody_got_takes_no_other_hold_with_it() {
    let world = after(
        &BLOCKING,
        &[
            ask(A, 0, Wait::Block),
            ask(B, 0, Wait::Block),
            undelivered(release(A)),
            ask(B, 1, Wait::Block),
            SILENCE,
        ],
    );
    assert_eq!(world.oracle.holds(B), 1);
}

#[test]
fn a_hand_off_that_nobody_got_takes_no_other_connections_hold_with_it() {
    let world = after(
        &SESSIONS,
        &[
            ask(A, 0, Wait::Block),
            with(ask(B, 0, Wait::Block), false, true),
            undelivered(release(A)),
            with(ask(B, 1, Wait::Block), false, true),
            SILENCE,
        ],
    );
    assert_eq!(world.oracle.holds(B), 1);
    assert_eq!(
        world.oracle.holds_of(world.oracle.slots[B][1].connection),
        1
    );
}

#[test]
fn a_hand_off_that_its_owner_has_asked_about_since_stands() {
    let world = after(
        &MIXED,
        &[
            ask(A, 0, Wait::Block),
            ask(B, 0, Wait::Block),
            undelivered(release(A)),
            with(ask(B, 1, Wait::Block), true, false),
            SILENCE,
        ],
    );
    assert_eq!(world.oracle.holds(B), 1);
}

#[test]
fn a_waiter_that_leaves_twice_is_counted_once() {
    let time_out = Step::of(Action::TimeOut(B, 0));
    after(
        &BLOCKING,
        &[
            ask(A, 0, Wait::Block),
            ask(B, 0, Wait::Block),
            time_out,
            ask(B, 0, Wait::Block),
            time_out,
            SILENCE,
        ],
    );
}

#[test]
fn a_lease_that_ends_before_a_command_that_changes_nothing_is_acted_on() {
    let world = after(
        &BLOCKING,
        &[
            ask(A, 0, Wait::Block),
            SILENCE,
            SILENCE,
            ask(B, 0, Wait::Block),
            Step::of(Action::Late),
            release(A),
            SILENCE,
        ],
    );
    assert_eq!(world.oracle.holds(B), 1);
}

#[test]
fn a_head_lives_through_the_millisecond_of_its_score() {
    after(
        &SCRIPTS,
        &[
            ask(A, 0, Wait::Block),
            script(C),
            SILENCE,
            SILENCE,
            release(A),
            script(D),
            SILENCE,
            script(C),
            SILENCE,
            Step::of(Action::Delete),
            script(C),
        ],
    );
}

#[test]
fn a_dead_head_does_not_expose_those_behind_it() {
    after(
        &MIXED,
        &[
            ask(A, 0, Wait::Poll),
            ask(B, 0, Wait::Poll),
            ask(C, 0, Wait::Block),
            SILENCE,
            SILENCE,
            ask(A, 0, Wait::Poll),
            SILENCE,
        ],
    );
}

#[test]
fn a_head_that_was_found_does_not_expose_those_behind_it() {
    after(
        &SCRIPTS,
        &[
            script(C),
            script(D),
            ask(A, 0, Wait::Block),
            Step::of(Action::Restart),
            ask(B, 0, Wait::Block),
            SILENCE,
            Step::of(Action::LeaveByScript(D)),
            SILENCE,
        ],
    );
}

#[test]
fn a_clock_that_is_set_ahead_exposes_nobody() {
    after(
        &CLOCK,
        &[
            ask(A, 0, Wait::Block),
            ask(B, 0, Wait::Poll),
            release(A),
            Step::of(Action::SetClock(4)),
        ],
    );
}

#[test]
fn a_clock_that_is_set_in_a_turn_exposes_nobody() {
    after(
        &CLOCK,
        &[
            ask(A, 0, Wait::Block),
            SILENCE,
            ask(B, 0, Wait::Block),
            Step::of(Action::SetClock(-4)),
            Step::of(Action::Restart),
            script(C),
            release(A),
            Step::of(Action::SetClock(4)),
            SILENCE,
        ],
    );
}

#[test]
fn a_waiter_that_asks_for_more_is_served_as_it_asked_before() {
    let mut steps = [
        share(B, Wait::Block, 2),
        SILENCE,
        share(C, Wait::Block, 0),
        share(A, Wait::Block, 0),
        Step::of(Action::Late),
        ask(A, 1, Wait::Try),
    ];
    for step in &mut steps {
        if let Action::Acquire(request) = &mut step.action {
            request.lease = 1;
        }
    }
    let world = after(&UPGRADES, &steps);
    assert_eq!(world.oracle.holds(A), 1);
}

#[test]
fn a_dead_writer_keeps_no_reader_from_joining_others() {
    let world = after(
        &READERS,
        &[
            share(A, Wait::Block, 0),
            ask(C, 0, Wait::Poll),
            SILENCE,
            Step::of(Action::Renew(A, 2)),
            SILENCE,
            Step::of(Action::Renew(A, 2)),
            SILENCE,
            share(B, Wait::Try, 0),
        ],
    );
    assert_eq!(world.oracle.holds(B), 1);
}

#[test]
fn a_dead_writer_is_dropped_although_a_command_came_first() {
    let world = after(
        &READERS,
        &[
            share(A, Wait::Block, 0),
            ask(C, 0, Wait::Poll),
            SILENCE,
            share(B, Wait::Block, 0),
            Step::of(Action::Renew(A, 2)),
            SILENCE,
            Step::of(Action::Renew(A, 2)),
            Step::of(Action::Late),
            release(C),
            SILENCE,
        ],
    );
    assert_eq!(world.oracle.holds(B), 1);
}

#[test]
fn a_writer_that_has_left_keeps_no_reader_from_joining_others() {
    let world = after(
        &READERS,
        &[
            share(A, Wait::Block, 0),
            ask(C, 0, Wait::Block),
            Step::of(Action::TimeOut(C, 0)),
            share(B, Wait::Try, 0),
        ],
    );
    assert_eq!(world.oracle.holds(B), 1);
}

#[test]
fn a_row_of_readers_is_served_at_once_and_none_overtakes_a_writer() {
    let world = after(
        &FOUR,
        &[
            ask(C, 0, Wait::Block),
            share(A, Wait::Block, 0),
            share(B, Wait::Block, 0),
            ask(D, 0, Wait::Block),
            release(C),
        ],
    );
    assert_eq!((world.oracle.holds(A), world.oracle.holds(B)), (1, 1));
    let world = after(
        &FOUR,
        &[
            share(A, Wait::Block, 0),
            ask(C, 0, Wait::Block),
            share(B, Wait::Block, 0),
            release(A),
        ],
    );
    assert_eq!((world.oracle.holds(C), world.oracle.holds(B)), (1, 0));
}

/// As [`share`], on the connection that all owners have in common, or another.
fn bound(owner: usize, slot: usize) -> Step {
    let mut step = with(ask(owner, slot, Wait::Try), false, true);
    (request(&mut step).limit, request(&mut step).lease) = (0, 1_000);
    step
}

#[test]
fn two_holders_that_rely_on_one_connection_both_end_with_it() {
    let leaves = Step::of(Action::Release {
        owner: A,
        slot: 1,
        token: None,
        all: true,
    });
    let closes = Step::of(Action::Close(B, 1));
    let steps = [bound(A, 1), bound(B, 1), bound(C, 1), leaves, closes];
    let world = after(&LARGE, &[&steps[..], &[SILENCE]].concat());
    assert!(world.oracle.holders.is_empty());
}

#[test]
fn a_session_lives_on_although_its_lease_was_cut_short() {
    let mut other = share(B, Wait::Try, 0);
    request(&mut other).lease = 1_000;
    let cut = Step::of(Action::SetExpiry(10));
    let sleep = Step::of(Action::Silence(3_000));
    let world = after(&LARGE, &[bound(A, 0), other, cut, SILENCE, sleep]);
    assert_eq!((world.oracle.holds(A), world.oracle.holds(B)), (1, 0));
}

#[test]
fn a_session_lives_on_although_another_lease_ends_as_early_when_the_clock_is_set_ahead() {
    let other = share(A, Wait::Try, 0);
    let step = Step::of(Action::SetClock(2));
    let mut session = bound(B, 0);
    request(&mut session).lease = 2;
    let world = after(&LARGE, &[other, session, step, SILENCE, SILENCE]);
    assert_eq!((world.oracle.holds(A), world.oracle.holds(B)), (0, 1));
}

#[test]
fn an_owner_that_is_back_before_its_closed_connection_is_swept_keeps_its_place() {
    // The holder is alone, or tolerates one more, or any number. It asks by a command, or by a script.
    for limit in [1, 2, 0] {
        for again in [ask(B, 0, Wait::Poll), script(B)] {
            let time_out = Step::of(Action::TimeOut(B, 0));
            let waiters = [ask(B, 0, Wait::Block), ask(C, 0, Wait::Block)];
            let holder = share(A, Wait::Try, limit);
            let steps = [holder, waiters[0], waiters[1], time_out, again];
            let world = after(&LARGE, &steps);
            let queue: Vec<usize> = world.oracle.queue.iter().map(|of| of.owner).collect();
            assert_eq!(queue, [B, C], "{limit}");
        }
    }
}

/// A script that does not wait, at a server that may not use more memory.
fn without_memory(owner: usize, skew: i64) -> Step {
    let mut step = script(owner);
    if let Action::LockByScript(script) = &mut step.action {
        (script.wait, script.memory_is_full, script.skew) = (None, true, skew);
    }
    step
}

#[test]
fn a_script_that_would_take_the_lock_is_refused_without_memory() {
    let steps = [
        ask(A, 0, Wait::Try),
        ask(B, 0, Wait::Block),
        Step::of(Action::TimeOut(B, 0)),
        Step::of(Action::Delete),
        without_memory(C, 0),
    ];
    assert!(after(&LARGE, &steps).oracle.holders.is_empty());
}

#[test]
fn a_script_needs_no_memory_to_be_told_that_it_is_anothers_turn() {
    let steps = [
        ask(A, 0, Wait::Try),
        ask(B, 0, Wait::Poll),
        Step::of(Action::Restart),
        Step::of(Action::Silence(5)),
        Step::of(Action::Delete),
        SILENCE,
        without_memory(C, 2_494),
    ];
    assert_eq!(after(&LARGE, &steps).oracle.queue.len(), 1);
}

#[test]
fn a_score_that_another_client_has_set_far_off_is_set_right_and_a_blocked_waiters_not_too_often() {
    let far = Step::of(Action::SetScore(B, 1 << 40));
    let steps = [ask(A, 0, Wait::Try), ask(B, 0, Wait::Block), far, SILENCE];
    let world = after(&LARGE, &steps);
    let ahead = world.state.queue[0].1.score - world.now.millis();
    assert_eq!(ahead, 1_002);
}
