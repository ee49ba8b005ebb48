//! What the search has found so far, each the shortest way to a promise that was broken once.

use super::action::{Action, Step};
use super::scope::{Kind, Scope, Wait};
use super::world::World;
use super::{BLOCKING, CLOCK, MIXED, READERS, SCRIPTS, SESSIONS, UPGRADES};

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
        world = match world.after(*step, scope) {
            Ok((world, _)) => world,
            Err(broken) => panic!("{number}. {step}: {broken}"),
        };
    }
    world
}

fn ask(owner: usize, slot: usize, wait: Wait) -> Step {
    Step::of(Action::Acquire {
        owner,
        slot,
        wait,
        limit: 1,
        once: false,
        session: false,
    })
}

/// As [`ask`], with SHARED; `limit` 0 is none.
fn share(owner: usize, wait: Wait, its_limit: u32) -> Step {
    let mut step = ask(owner, 0, wait);
    if let Action::Acquire { limit, .. } = &mut step.action {
        *limit = its_limit;
    }
    step
}

fn with(mut step: Step, its_once: bool, its_session: bool) -> Step {
    if let Action::Acquire { once, session, .. } = &mut step.action {
        (*once, *session) = (its_once, its_session);
    }
    step
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
    action: Action::Silence,
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
            Step::of(Action::Stall),
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
            Step::of(Action::LockByScript(C)),
            SILENCE,
            SILENCE,
            release(A),
            Step::of(Action::LockByScript(D)),
            SILENCE,
            Step::of(Action::LockByScript(C)),
            SILENCE,
            Step::of(Action::Delete),
            Step::of(Action::LockByScript(C)),
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
            Step::of(Action::LockByScript(C)),
            Step::of(Action::LockByScript(D)),
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
            Step::of(Action::LockByScript(C)),
            release(A),
            Step::of(Action::SetClock(4)),
            SILENCE,
        ],
    );
}

#[test]
fn a_waiter_that_asks_for_more_is_served_as_it_asked_before() {
    let world = after(
        &UPGRADES,
        &[
            share(B, Wait::Block, 2),
            SILENCE,
            share(C, Wait::Block, 0),
            share(A, Wait::Block, 0),
            Step::of(Action::Stall),
            ask(A, 1, Wait::Try),
        ],
    );
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
            Step::of(Action::Stall),
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
