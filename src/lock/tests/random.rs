//! Random steps in a large world.

use super::action::{Action, Request, Script, Step, story};
use super::oracle::Checked;
use super::scope::{LARGE, Wait};
use super::world::World;
use crate::lock::Millis;
use crate::lock::scripts::Sleep;

/// A step is drawn with as many bytes.
pub type Draw = [u8; 10];

/// Takes the steps that are drawn, those that can be taken.
pub fn take(draws: impl IntoIterator<Item = Draw>) -> Checked {
    let mut world = World::new(&LARGE);
    let mut way = Vec::new();
    for draw in draws {
        let action = action(&draw);
        let Some(action) = world.can(action) else {
            continue;
        };
        let undelivered = draw[9] % 8 == 7 && world.undelivered.len() < 2;
        let step = Step {
            action,
            undelivered,
        };
        way.push(step);
        let after = world.after(step);
        (world, _) = after.map_err(|broken| story(&broken, &way))?;
    }
    Ok(())
}

/// One of these.
fn one<T: Copy>(of: &[T], draw: u8) -> T {
    of[usize::from(draw) % of.len()]
}

/// A number in this range.
fn number(draw: &[u8], least: i64, most: i64) -> i64 {
    let number = i64::from(draw[0]) << 8 | i64::from(draw[1]);
    least + number % (most - least + 1)
}

fn time(draw: &[u8], most: i64) -> Millis {
    let most = if draw[2].is_multiple_of(2) { 60 } else { most };
    number(draw, 1, most).unsigned_abs()
}

fn action(draw: &Draw) -> Action {
    const LEASES: [Millis; 4] = [10, 100, 1_000, 5_000];
    let (kind, more) = (draw[0] % 48, &draw[3..]);
    let owner = usize::from(draw[1]) % LARGE.owners.len();
    let slot = usize::from(draw[2]) % 2;
    let lease = one(&LEASES, more[0]);
    let skew = if more[5] < 200 {
        0
    } else {
        number(&more[3..], -3_000, 3_000)
    };
    match kind {
        0..=10 => Action::Acquire(Request {
            owner,
            slot,
            wait: one(&[Wait::Try, Wait::Poll, Wait::Block, Wait::Block], more[1]),
            limit: one(&[1, 0, 2, 1, 0, 3], more[2]),
            lease,
            patience: one(&[1, 40, 300, 2_000], more[3]),
            once: more[4] % 2 == 1,
            keeps: more[4] % 4 > 1,
            session: more[5] % 3 == 2,
        }),
        11..=18 => {
            let token = one(&[None, None, Some(true), Some(false)], more[0]);
            Action::Release(owner, slot, token, more[1] % 2 == 1)
        }
        19 => Action::Renew(owner, lease),
        20 => Action::Cancel(owner),
        21 => Action::Break(Some(owner).filter(|_| slot == 1)),
        22 => Action::TimeOut(owner, slot),
        23..=25 => Action::Close(owner, slot),
        26..=31 => Action::Silence(time(more, 3_000)),
        32 => Action::Stall(time(more, 9_000)),
        33 => Action::SetClock(one(
            &[number(more, -3_000, 3_000), -3_600_000, 3_600_000],
            more[3],
        )),
        34 => Action::Delete,
        35 => Action::DeleteHolder(owner),
        36 => Action::SetExpiry(lease),
        37 => Action::SetScore(owner, one(&[number(more, -600, 600), 1 << 40], more[3])),
        38 => Action::LoseToken,
        39 => Action::Restart,
        40 => Action::LeaveByScript(owner),
        41 => Action::ForceUnlock(skew),
        42..=43 => Action::UnlockByScript(owner, lease, skew),
        _ => {
            let sleep = one(
                &[Sleep::Lease, Sleep::BehindPrevious, Sleep::BehindHead],
                more[1],
            );
            let wait = one(&[Some(300), Some(40), Some(0), None], more[2]);
            Action::LockByScript(Script {
                owner,
                lease,
                wait: wait.map(|patience| (patience, sleep)),
                skew,
                memory_is_full: more[6] % 8 == 7,
            })
        }
    }
}

impl World {
    /// The same for one of those to which it can happen; none if there are none.
    fn can(&self, action: Action) -> Option<Action> {
        let all = (0..LARGE.owners.len()).flat_map(|owner| [(owner, 0), (owner, 1)]);
        let slot = |(owner, slot): (usize, usize)| self.oracle.slots[owner][slot];
        let is_blocked = |of: &(usize, usize)| slot(*of).blocked.is_some();
        let can_close =
            |of: &(usize, usize)| is_blocked(of) || self.oracle.holds_of(slot(*of).connection) > 0;
        let nth = |nth: usize, of: Vec<(usize, usize)>| of.get(nth % of.len().max(1)).copied();
        let queued = |owner: usize| {
            let queue = self.oracle.queue.iter();
            nth(owner, queue.map(|place| (place.owner, 0)).collect()).map(|of| of.0)
        };
        Some(match action {
            Action::Acquire(of) if is_blocked(&(of.owner, of.slot)) => return None,
            Action::Release(owner, slot, Some(_), _) if is_blocked(&(owner, slot)) => return None,
            Action::Release(owner, slot, token, all) if owner % 4 > 0 => {
                let holders = self.oracle.holders.iter();
                let (owner, _) = nth(owner, holders.map(|of| (of.owner, 0)).collect())?;
                Action::Release(owner, slot, token, all)
            }
            Action::TimeOut(owner, _) => {
                let (owner, slot) = nth(owner, all.filter(is_blocked).collect())?;
                Action::TimeOut(owner, slot)
            }
            Action::Close(owner, _) => {
                let (owner, slot) = nth(owner, all.filter(can_close).collect())?;
                Action::Close(owner, slot)
            }
            Action::SetScore(owner, score) => Action::SetScore(queued(owner)?, score),
            Action::LeaveByScript(owner) => Action::LeaveByScript(queued(owner)?),
            Action::LoseToken if !self.may_lose_token() => return None,
            _ => action,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000),
            ..ProptestConfig::default()
        })]

        #[test]
        fn the_lock_keeps_its_promises(draws in prop::collection::vec(any::<Draw>(), 1..60)) {
            take(draws).map_err(TestCaseError::fail)?;
        }
    }
}
