//! Random steps in a large world.

use proptest::prelude::*;
use proptest::test_runner::TestRng;

use super::action::{Action, Request, Script, Step, story};
use super::oracle::Checked;
use super::scope::{LARGE, Wait};
use super::world::World;
use crate::lock::Millis;
use crate::lock::scripts::Sleep;

/// Takes those of the steps that are possible.
fn take(steps: Vec<Step>) -> Checked {
    let mut world = World::new(&LARGE);
    let mut way = Vec::new();
    for mut step in steps {
        if !world.can(step.action) {
            continue;
        }
        step.undelivered &= world.noted.undelivered.len() < 2;
        way.push(step);
        let after = world.after(step);
        (world, _) = after.map_err(|broken| story(&broken, &way))?;
    }
    Ok(())
}

/// One of these.
fn one<T: Copy>(random: &mut TestRng, of: &[T]) -> T {
    of[random.random_range(0..of.len())]
}

fn time(random: &mut TestRng, most: Millis) -> Millis {
    let most = one(random, &[60, most]);
    random.random_range(1..=most)
}

/// What is possible at few times only is drawn more often than it shall be taken.
fn action(random: &mut TestRng) -> Action {
    let owner = random.random_range(0..LARGE.owners.len());
    let slot = random.random_range(0..2);
    let lease = one(random, &[10, 100, 1_000, 5_000]);
    let ahead = random.random_range(-3_000..=3_000);
    let skew = one(random, &[0, 0, 0, ahead]);
    match random.random_range(0..62) {
        0..=10 => Action::Acquire(Request {
            owner,
            slot,
            wait: one(random, &[Wait::Try, Wait::Poll, Wait::Block, Wait::Block]),
            limit: one(random, &[1, 0, 2, 1, 0, 3]),
            lease,
            patience: one(random, &[1, 40, 300, 2_000]),
            once: random.random(),
            keeps: random.random(),
            session: random.random_bool(0.3),
        }),
        11..=24 => {
            let token = one(random, &[None, None, Some(true), Some(false)]);
            Action::Release(owner, slot, token, random.random())
        }
        25 => Action::Renew(owner, lease),
        26 => Action::Cancel(owner),
        27 => Action::Break(Some(owner).filter(|_| slot == 1)),
        28..=31 => Action::TimeOut(owner, slot),
        32..=37 => Action::Close(owner, slot),
        38..=43 => Action::Silence(time(random, 3_000)),
        44 => Action::Stall(time(random, 9_000)),
        45 => Action::SetClock(one(random, &[ahead, -3_600_000, 3_600_000])),
        46 => Action::Delete,
        47 => Action::DeleteHolder(owner),
        48 => Action::SetExpiry(lease),
        49..=50 => Action::SetScore(owner, one(random, &[ahead / 5, 1 << 40])),
        51 => Action::LoseToken,
        52 => Action::Restart,
        53..=54 => Action::LeaveByScript(owner),
        55 => Action::ForceUnlock(skew),
        56..=57 => Action::UnlockByScript(owner, lease, skew),
        _ => {
            let sleeps = [Sleep::Lease, Sleep::BehindPrevious, Sleep::BehindHead];
            let sleep = one(random, &sleeps);
            let wait = one(random, &[Some(300), Some(40), Some(0), None]);
            Action::LockByScript(Script {
                owner,
                lease,
                wait: wait.map(|patience| (patience, sleep)),
                skew,
                memory_is_full: random.random_bool(0.125),
            })
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    Just(()).prop_perturb(|(), mut random| Step {
        action: action(&mut random),
        undelivered: random.random_bool(0.125),
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_lock_keeps_its_promises(steps in prop::collection::vec(step(), 1..80)) {
        take(steps).map_err(TestCaseError::fail)?;
    }
}
