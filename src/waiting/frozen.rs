//! Which locks are frozen, because not all of their keys are at this node of the cluster; and the timer for
//! checking them and the slots of all other locks.
//!
//! What it means to be frozen, and what is done when the timer rings, is in
//! [`moving`](super::moving).

use std::collections::HashSet;

use crate::keyspace::Names;
use crate::server::cluster::SlotState;
use crate::server::timer::{self, Timer};
use crate::server::{Ctx, in_cluster};

use super::id::LockId;

/// Milliseconds between two looks at frozen locks.
const SOON: u64 = 100;
/// Milliseconds between two looks at the slots of all locks with waiters.
const SELDOM: u64 = 1000;

/// The frozen locks.
#[derive(Debug, Default)]
pub struct Frozen {
    locks: HashSet<LockId>,
    alarm: Option<(u64, Timer)>,
    /// Milliseconds since the slots of all locks were looked at.
    since: u64,
}

/// What the timer does when it rings: [`moving`](super::moving) implements it.
pub struct Round;

/// Where the keys of a lock are.
pub fn slot_state(ctx: &Ctx, names: &Names, is_shared: bool) -> SlotState {
    if !in_cluster() {
        return SlotState::Here;
    }
    let last = if is_shared {
        names.shared()
    } else {
        &names.lock
    };
    ctx.slot_state([&names.lock, &names.queue, &names.deadlines, last])
}

/// Whether all keys of a lock are at this node. Selects the lock's database.
pub fn is_here(ctx: &Ctx, lock: &LockId) -> bool {
    ctx.select_db(lock.db) && slot_state(ctx, &Names::of(&lock.name), false) == SlotState::Here
}

impl Frozen {
    /// A lock is frozen: it is looked at soon.
    pub fn freeze(&mut self, ctx: &Ctx, lock: LockId) {
        self.stay(lock);
        self.set_alarm(ctx, SOON);
    }

    /// A lock that was taken out is still frozen.
    pub fn stay(&mut self, lock: LockId) {
        self.locks.insert(lock);
    }

    /// Takes the frozen locks out.
    pub fn take(&mut self) -> HashSet<LockId> {
        std::mem::take(&mut self.locks)
    }

    /// Sets the timer, if there is something to check. `waiters`: any lock has waiters; `arriving`: there are
    /// locks whose slot is not here yet.
    pub fn keep_watch(&mut self, ctx: &Ctx, waiters: bool, arriving: bool) {
        if arriving || !self.locks.is_empty() {
            self.set_alarm(ctx, SOON);
        } else if waiters {
            self.set_alarm(ctx, SELDOM);
        }
    }

    fn set_alarm(&mut self, ctx: &Ctx, delay: u64) {
        if let Some((set, _)) = self.alarm
            && set <= delay
        {
            return;
        }
        if let Some((_, timer)) = self.alarm.take() {
            timer::stop(ctx, &timer);
        }
        self.alarm = Some((delay, timer::start::<Round>(ctx, delay)));
    }

    /// The timer has rung. Returns after how many milliseconds.
    pub fn rang(&mut self) -> u64 {
        self.alarm.take().map_or(0, |(delay, _)| delay)
    }

    /// Adds the milliseconds that have passed. Returns whether the slots of all locks are to be checked now.
    pub fn are_slots_due(&mut self, passed: u64) -> bool {
        self.since = self.since.saturating_add(passed);
        let due = self.since >= SELDOM;
        if due {
            self.since = 0;
        }
        due
    }

    /// Forgets all. The timer may still ring, and finds nothing.
    pub fn clear(&mut self) {
        self.locks.clear();
        self.since = 0;
    }
}
