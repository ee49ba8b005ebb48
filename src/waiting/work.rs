//! Doing the work that was noted, one lock after the other, between commands: waiters whose connections have closed
//! leave the queue, locks of lost hand-offs are taken back, locks that were bound to closed connections are given up,
//! and locks whose keys were touched from outside the module are looked at. All that is to be done about a lock is
//! one step, and the keys as they are then decide: several commands may have run since.
//!
//! Also the walk over the keys that were there before this server was to look after their locks: before the module was
//! loaded, before the server became the master, or before it had their slots. (A server that starts raises an event for
//! each key that it loads. One that is already running raises none.)

use crate::config;
use crate::keyspace::{Names, QueueView, names};
use crate::server::{Ctx, events, in_cluster};
use crate::stats::Stats;

use super::conditions;
use super::connections::{HandOffs, Sessions};
use super::foreign;
use super::record::{LockId, WORK_BATCH, Work};
use super::state::{ensure_before_sleep, hand_offs, sessions, stats, table, waiting};
use super::step::{Cause, SOON, set_timer, step_on};
use super::table::Table;

/// Does what was noted until now, as far as there is time. Names that are not locks of the module cost little to check,
/// so the batch grows with the backlog, which stays bounded however fast other clients write.
pub fn go_on(ctx: &Ctx) {
    let is_over = conditions::begin_slice();
    let noted = table(|table| table.noted());
    let mut done = 0;
    for _ in 0..noted.min(WORK_BATCH.max(noted / 8)) {
        if done == WORK_BATCH || (done > 0 && is_over()) {
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
        || table(|table| table.looks_after(lock, config::intercept_eval()))
        || shall_track(ctx, lock, work.touch);
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
    let is_frozen = table(|table| table.is_away(lock.db, &lock.name));
    if (done.is_err() || is_frozen) && !work.is_touch_only() {
        table(|table| table.keep_work(lock, work));
    }
    if is_frozen {
        foreign::forget_if_gone(ctx, lock);
    }
    true
}

/// Whether to track a touched lock that is not tracked yet. An event of a queue key names two locks, `a` and `{a}`. One
/// whose slot has not come to this node yet is looked at again soon, unless its twin is tracked by then.
fn shall_track(ctx: &Ctx, lock: &LockId, touch: Option<QueueView>) -> bool {
    let was_away = table(|table| table.is_away(lock.db, &lock.name));
    let are_loaded = was_away || touch == Some(QueueView::Loaded);
    let is_own = (!in_cluster() || names::one_slot(&lock.name))
        && ctx.select_db(lock.db)
        && foreign::has_queue(ctx, &lock.name)
        && foreign::has_own_keys(ctx, lock, are_loaded);
    if !is_own {
        table(|table| table.forget(lock.db, &lock.name));
        table(|table| table.look_no_more(lock));
        return false;
    }
    let is_here = conditions::is_here(ctx, lock);
    if !is_here {
        let now = conditions::now();
        table(|table| table.set_away(lock, now.tick_after(SOON)));
        set_timer(ctx, now);
    }
    is_here
}

/// The server has become a replica, or the master. A replica tracks no lock: its keys are the master's, which drops
/// the waiters of this server from the queue when their deadlines pass.
pub fn role_changes(ctx: &Ctx, replica: bool) {
    if replica {
        // The blocked clients are sent away when the iteration ends.
        ensure_before_sleep();
        table(|table| table.clear(ctx));
        sessions(|sessions| *sessions = Sessions::default());
        hand_offs(|hand_offs| *hand_offs = HandOffs::default());
        stats(Stats::forget_holders);
    } else {
        keys_have_come(ctx);
    }
}

/// Slots have moved as a whole, to this node or to another.
pub fn slots_move(ctx: &Ctx, have_come: bool) {
    if have_come {
        keys_have_come(ctx);
    } else {
        foreign::touch_all(None);
    }
}

/// Keys have come to this server that another one has looked after. A token may be requested before the next step on
/// one of their locks.
fn keys_have_come(ctx: &Ctx) {
    conditions::slots_have_come();
    look_for_queues(ctx);
}

/// Keys of the walk over all keys in one iteration: some tenths of a millisecond.
const SCAN_BATCH: usize = 500;

/// Begins the walk over all keys, if there are any: when the module is loaded and configured, and when keys have come.
pub fn look_for_queues(ctx: &Ctx) {
    ensure_before_sleep();
    let selected = ctx.db();
    let any = (0..i32::MAX)
        .take_while(|db| ctx.select_db(*db))
        .any(|_| ctx.keys() > 0);
    // The caller's database; there is one.
    let _ = ctx.select_db(selected);
    waiting(|waiting| waiting.scan.set(any.then_some((0, 0))));
    if any {
        events::hurry();
    }
}

/// Continues that walk.
pub fn look_on(ctx: &Ctx) {
    let Some((db, cursor)) = waiting(|waiting| waiting.scan.get()) else {
        return;
    };
    let found = ctx
        .select_db(db)
        .then(|| ctx.scan(cursor, SCAN_BATCH, "redisson_lock_*"));
    let goes_on = found.flatten().map(|(keys, next)| {
        for key in &keys {
            foreign::touch_queue(db, key, QueueView::Loaded);
        }
        match next {
            0 => (db + 1, 0),
            next => (db, next),
        }
    });
    waiting(|waiting| waiting.scan.set(goes_on));
    if goes_on.is_some() {
        events::hurry();
    }
}
