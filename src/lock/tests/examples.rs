//! What the drivers do not try: each step is checked as theirs are.

use super::action::{Action, Request, Step};
use super::memory::Memory;
use super::scope::{BLOCKING, LARGE, Wait};
use super::world::World;
use crate::lock::turn::REAP_BATCH;
use crate::lock::{self, Ask, Event, Millis, Now, Owner, Terms, WaitMode, Waiter, Wall};

const LEASE: Millis = 1_000;

fn request(owner: usize, wait: Wait) -> Request {
    Request {
        owner,
        slot: 0,
        wait,
        limit: 1,
        lease: LEASE,
        patience: 3,
        once: false,
        keeps: false,
        session: false,
    }
}

fn ask(owner: &[u8], wait: WaitMode) -> Ask<'_> {
    Ask {
        owner,
        terms: Terms::UNKNOWN,
        keeps_longer_lease: false,
        patience: 1,
        once: false,
        wait: Some(wait),
    }
}

#[test]
fn a_score_that_another_client_has_set_far_off_is_set_right_and_a_blocked_waiters_not_too_often() {
    let steps = [
        Action::Acquire(request(0, Wait::Try)),
        Action::Acquire(request(1, Wait::Block)),
        Action::Acquire(request(2, Wait::Poll)),
        Action::SetScore(1, 1 << 40),
        Action::SetScore(2, 1 << 40),
        Action::Silence(1),
        Action::Acquire(request(2, Wait::Poll)),
    ];
    let mut world = World::new(&LARGE);
    for action in steps {
        let after = world.after(Step::of(action));
        (world, _) = after.unwrap_or_else(|broken| panic!("{action:?}: {broken}"));
    }
    let scores = world.state.queue.iter().map(|(_, waiter)| waiter.score);
    let ahead: Vec<_> = scores.map(|score| score.since(world.now.wall())).collect();
    assert_eq!(ahead, [LEASE + 1_000, LEASE + 2 * 3]);
}

#[test]
fn a_caller_that_blocks_behind_a_long_row_of_dead_waiters_is_served_once_all_are_dropped() {
    let now = Now::from_millis(1_000);
    let dead = Waiter::found(Wall::default(), now);
    let row = 0..=REAP_BATCH;
    let mut state = Memory {
        queue: row.map(|n| (Owner::from(n.to_be_bytes()), dead)).collect(),
        ..Memory::default()
    };
    let mut step = lock::Step::new(&mut state, &BLOCKING.rules, now);
    assert!(step.ask(&ask(b"B", WaitMode::Blocked(1))).is_ok());
    assert_eq!(step.state.queue.len(), 1);
    assert_eq!(step.next_due().tick, Some(now.tick()));
    step.look();
    assert!(matches!(
        step.state.events[..],
        [.., Event::Granted { ticket: 1, .. }]
    ));
}
