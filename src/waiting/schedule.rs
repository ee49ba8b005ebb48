//! When locks are due, and the one timer for the first of them.
//!
//! A lock is due by the wall clock when its lease ends, and by the steady clock for all else. Only
//! instants are kept here: what is done with a lock that is due is decided above.

use std::collections::BTreeSet;

use crate::lock::{Due, Now, Tick, Wall};
use crate::server::Ctx;
use crate::server::events::{self, Timer};

use super::record::LockId;

/// When locks are due, by each of the two clocks.
#[derive(Default)]
pub struct Schedule {
    by_wall: BTreeSet<(Wall, LockId)>,
    by_tick: BTreeSet<(Tick, LockId)>,
    /// The server's timer, and for when it was set.
    armed: Option<(Tick, Timer)>,
}

/// Moves a lock from one of these instants to the other.
fn move_to<T: Copy + Ord>(
    locks: &mut BTreeSet<(T, LockId)>,
    id: &LockId,
    [from, to]: [Option<T>; 2],
) {
    if from == to {
        return;
    }
    if let Some(at) = from {
        locks.remove(&(at, id.clone()));
    }
    if let Some(at) = to {
        locks.insert((at, id.clone()));
    }
}

impl Schedule {
    /// Schedules a lock anew; `scheduled`: what it was scheduled for, and is from now on.
    pub fn set(&mut self, id: &LockId, scheduled: &mut Due, due: Due) {
        move_to(&mut self.by_wall, id, [scheduled.wall, due.wall]);
        move_to(&mut self.by_tick, id, [scheduled.tick, due.tick]);
        *scheduled = due;
    }

    /// Whether any lock is due.
    pub fn is_due(&self, now: Now) -> bool {
        self.first(now).is_some_and(|at| at <= now.tick())
    }

    /// Some of the locks that are due, those whose lease has ended first. The rest come next time: many at once must
    /// not keep the server from its clients. Others come behind all whose lease has ended, among which they may be.
    pub fn due(&self, now: Now) -> Vec<LockId> {
        const DUE_BATCH: usize = 100;
        // A key lives through the millisecond in which it expires.
        let by_wall = self.by_wall.iter();
        let ended = by_wall.take_while(|(at, _)| *at < now.wall());
        let by_tick = self.by_tick.iter();
        let over = by_tick.take_while(|(at, _)| *at <= now.tick());
        let due = ended.map(|(_, id)| id).chain(over.map(|(_, id)| id));
        due.take(DUE_BATCH).cloned().collect()
    }

    /// When the timer rings, if it is set.
    pub fn alarm(&self) -> Option<Tick> {
        self.armed.as_ref().map(|(at, _)| *at)
    }

    /// The timer has rung.
    pub fn rang(&mut self) {
        self.armed = None;
    }

    /// Sets the timer for the first lock that is due. One that rings too early does no harm, so it is set anew only to
    /// ring earlier; or if it is late, because the server's timers wait for the wall clock, which was set back.
    ///
    /// `timeout` is when something else than a lock is due first.
    pub fn set_timer(&mut self, ctx: &Ctx, now: Now, timeout: Option<Tick>) {
        let Some(at) = self.first(now).into_iter().chain(timeout).min() else {
            return;
        };
        if let Some(rings) = self.alarm() {
            if (now.tick()..=at).contains(&rings) {
                return;
            }
            self.stop_timer(ctx);
        }
        let delay = at.since(now.tick()).max(1);
        let timer = events::start_timer(ctx, delay);
        self.armed = Some((at, timer));
    }

    /// When the first lock is due, by the steady clock.
    fn first(&self, now: Now) -> Option<Tick> {
        let wall = self.by_wall.first().map(|(at, _)| {
            let left = at.after(1).since(now.wall());
            now.tick_after(left)
        });
        let tick = self.by_tick.first().map(|(at, _)| *at);
        wall.into_iter().chain(tick).min()
    }

    pub fn stop_timer(&mut self, ctx: &Ctx) {
        if let Some((_, timer)) = self.armed.take() {
            events::stop_timer(ctx, &timer);
        }
    }
}
