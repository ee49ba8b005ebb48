//! Doing the work that was noted, one lock after the other, between commands: waiters whose connections have closed
//! leave the queue, locks of lost hand-offs are taken back, locks that were bound to closed connections are given up,
//! and locks whose keys were touched from outside the module are looked at. All that is to be done about a lock is
//! one step, and the keys as they are then decide: several commands may have run since.
//!
//! Also what goes through all locks: the look at their hashes once a second, and the walk over the keys that were there
//! before the module. (A server that starts raises an event for each key that it loads. One that is already running
//! raises none.)

use crate::keyspace::held::has_lost_holders;
use crate::keyspace::{Names, QueueView, Tracked, names};
use crate::server::{Ctx, events, in_cluster};

use super::conditions::{self, Slice};
use super::foreign;
use super::record::{LockId, Place, WORK_BATCH, Work};
use super::state::{ensure_before_sleep, table, touch, waiting};
use super::step::{Cause, set_timer, step_on};
use super::table::Table;

/// Does what was noted until now, as far as there is time. Names that are not locks of the module cost little to check,
/// so the batch grows with the backlog, which stays bounded however fast other clients write.
pub fn go_on(ctx: &Ctx, slice: Slice) {
    let noted = table(|table| table.noted());
    let mut done = 0;
    for _ in 0..noted.min(WORK_BATCH.max(noted / 8)) {
        if done == WORK_BATCH || (done > 0 && slice.is_over()) {
            break;
        }
        if let Some((lock, work)) = table(Table::take_work) {
            done += usize::from(attend(ctx, &lock, work));
        }
    }
}

/// Does the work on one lock. False if there is none for the module.
pub fn attend(ctx: &Ctx, lock: &LockId, mut work: Work) -> bool {
    let is_beside = table(|table| table.tracked_twin(|| lock.db, &lock.name).is_some());
    let is_known = !work.is_touch_only()
        || table(|table| table.contains(lock.db, &lock.name))
        || !is_beside && shall_track(ctx, lock);
    if !is_known || !ctx.select_db(lock.db) {
        return false;
    }
    let view = if is_beside {
        // Their queue is the twin's; a lost hand-off of this one is taken back without it.
        QueueView::Hidden
    } else {
        work.touch.unwrap_or(QueueView::AsLeft)
    };
    let done = step_on(ctx, &Names::of(&lock.name), Cause::Work(view), |step| {
        if !work.gone.is_empty() {
            step.leave_gone(work.gone.make_contiguous());
        }
        for grant in &work.lost {
            // Where another client has taken the lock away by now, there is nothing to take back.
            step.take_back(&grant.owner, grant.token, grant.session);
        }
        for (owner, connection) in &work.closed {
            step.connection_closed(owner, *connection);
        }
        if work.touch.is_some() {
            step.look();
        }
        Ok(())
    });
    let is_frozen = table(|table| table.place(lock.db, &lock.name)) == Place::Frozen;
    if (done.is_err() || is_frozen) && !work.is_touch_only() {
        table(|table| table.keep_work(lock, work));
    }
    if is_frozen {
        foreign::forget_if_gone(ctx, lock);
    }
    true
}

/// Whether to track a touched lock that is not tracked yet. An event of a queue key names two locks, `a` and `{a}`.
fn shall_track(ctx: &Ctx, lock: &LockId) -> bool {
    ctx.select_db(lock.db)
        && has_slot_of(ctx, lock)
        && foreign::has_queue(ctx, &lock.name)
        && foreign::has_own_keys(ctx, lock)
}

/// Whether this node has the lock's slot. If not, a lock of the module's is remembered as arriving.
fn has_slot_of(ctx: &Ctx, lock: &LockId) -> bool {
    if !in_cluster() {
        return true;
    }
    if !names::one_slot(&lock.name) {
        return false;
    }
    let is_here = conditions::is_here(ctx, lock);
    let arrives = !is_here && foreign::has_own_keys(ctx, lock);
    let place = if arrives {
        Place::Arriving
    } else {
        Place::Here
    };
    table(|table| table.set_place(lock, place));
    if arrives {
        set_timer(ctx, conditions::now());
    }
    is_here
}

/// How many locks are taken from the table at once for it.
const PATROL_BATCH: usize = 50;

/// Looks once a second at the hash of each lock. Other changes are reported by key events. The events of hashes are not
/// listened to: each HSET of any client would pay for them. So fields that were taken out, or have expired, are found
/// here, and the waiters do not wait for a holder that is gone.
///
/// A millisecond is spent on it at once, and at most a twentieth of the time: with more than some twenty thousand locks
/// a round takes longer than a second.
pub fn patrol(ctx: &Ctx) {
    let mut last = table(|table| table.schedule.patrolled.take());
    if last.is_none() && !table(|table| table.schedule.begin_round(conditions::tick())) {
        return;
    }
    let (slice, now) = (Slice::begin_search(), conditions::now().wall());
    loop {
        let locks = table(|table| table.behind(last.unwrap_or_default(), PATROL_BATCH));
        last = locks.last().map(|(rank, _)| *rank);
        for ((db, _), name) in locks {
            let lock = LockId { db, name };
            // To open a key that has expired would put its lock before those whose leases have ended earlier.
            if !table(|table| table.has_ended(&lock, now)) {
                patrol_one(ctx, &lock);
            }
        }
        if last.is_none() || slice.is_over() {
            break;
        }
    }
    table(|table| table.schedule.patrolled = last);
}

/// No lock is left to look at.
pub fn patrol_no_more() {
    table(|table| table.schedule.patrolled = None);
}

fn patrol_one(ctx: &Ctx, lock: &LockId) {
    let holders = |tracked: &Tracked| tracked.shared.as_ref().map(|shared| shared.count());
    let Some(shared) = table(|table| table.tracked(lock).map(holders)) else {
        return;
    };
    if ctx.select_db(lock.db) && has_lost_holders(ctx, &lock.name, shared) {
        touch(lock, QueueView::AsLeft);
    }
}

/// Keys of the walk over all keys in one iteration: some tenths of a millisecond.
const SCAN_BATCH: usize = 500;

/// As [`look_for_queues`], when the module is loaded and configured.
pub fn begin(ctx: &Ctx) {
    conditions::begin_to_see_commands(ctx);
    ensure_before_sleep();
    look_for_queues(ctx);
}

/// Begins the walk over all keys, if there are any.
pub fn look_for_queues(ctx: &Ctx) {
    let selected = ctx.db();
    let any = (0..i32::MAX)
        .take_while(|db| ctx.select_db(*db))
        .any(|_| ctx.keys() > 0);
    // The caller's database; there is one.
    let _ = ctx.select_db(selected);
    waiting(|waiting| waiting.scan.set(any.then_some((0, 0))));
    if any {
        ensure_before_sleep();
        events::hurry();
    }
}

/// Continues that walk.
pub fn look_on(ctx: &Ctx) {
    let Some((db, cursor)) = waiting(|waiting| waiting.scan.get()) else {
        return;
    };
    let names = ["MATCH", "redisson_lock_*"];
    let found = ctx
        .select_db(db)
        .then(|| ctx.scan(cursor, SCAN_BATCH, names));
    let goes_on = found.flatten().map(|found| {
        for key in &found.items {
            foreign::touch_queue(db, key, QueueView::Loaded);
        }
        match found.next {
            0 => (db + 1, 0),
            next => (db, next),
        }
    });
    waiting(|waiting| waiting.scan.set(goes_on));
    if goes_on.is_some() {
        events::hurry();
    }
}
