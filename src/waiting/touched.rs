//! Looks at the locks whose keys were touched from outside the module: between commands, and after a script
//! that runs as Lua although scripts are intercepted.
//!
//! The keys as they are then decide, not the event: several commands may have run since.

use crate::keyspace::{Names, names};
use crate::server::{Ctx, in_cluster};

use super::deferred::{AT_ONCE, Notes};
use super::foreign;
use super::frozen;
use super::id::LockId;
use super::slice::Slice;
use super::state::{arriving, notes, table};
use super::step::{keep_watch, look, step_on};
use super::touch::Touch;
use super::watch;

/// Processes what the script touched before another script can drop an expired waiter; in MULTI,
/// not before EXEC ends.
pub fn attend(ctx: &Ctx) {
    let quiet = notes(|notes| !notes.has_asked() && !notes.has_touched());
    if quiet || ctx.flags().in_transaction() {
        return;
    }
    let db = ctx.db();
    apply_polls(ctx);
    look_at_touched(ctx, Slice::begin());
    // The caller's database; there is one.
    let _ = ctx.select_db(db);
}

/// Marks Redisson's waiters that have asked as alive. Their locks are then looked at, if
/// their keys were touched from outside the module.
pub fn apply_polls(ctx: &Ctx) {
    for (lock, owners) in notes(Notes::take_asked) {
        let touch = notes(|notes| notes.take_touch(&lock));
        if !ctx.select_db(lock.db) {
            continue;
        }
        let queue = touch.unwrap_or_default().state();
        // A key of another type is not ours to report here.
        let _ = step_on(ctx, &Names::of(&lock.name), queue, None, |step| {
            for (owner, patience) in owners {
                step.asked(&owner, patience, 0);
            }
            step.look();
            Ok(())
        });
    }
}

/// Looks at some of the locks whose keys were touched from outside the module: as many as there is time for, and
/// at most `AT_ONCE` that have a queue. Names without a queue are cheap.
pub fn look_at_touched(ctx: &Ctx, slice: Slice) {
    let mut looked = 0;
    for lock in notes(|notes| notes.some_touched()) {
        let Some(touch) = notes(|notes| notes.take_touch(&lock)) else {
            continue;
        };
        looked += usize::from(look_at(ctx, &lock, touch));
        if looked == AT_ONCE || (looked > 0 && slice.is_over()) {
            break;
        }
    }
    notes(Notes::shrink_touched);
}

/// Looks at a lock that was touched from outside the module. False if it has no queue.
fn look_at(ctx: &Ctx, lock: &LockId, touch: Touch) -> bool {
    if table(|table| table.is_tracked(lock)) {
        look(ctx, lock, touch.state());
        return true;
    }
    if table(|table| table.is_watched(lock)) && !touch.loaded {
        if touch.queue {
            watch::look(ctx, lock);
        } else {
            watch::lock_changes(ctx, lock);
        }
        return true;
    }
    // An event of a queue key names two locks, `a` and `{a}`. The cheapest checks of which one it is come first.
    let is_its = ctx.select_db(lock.db)
        && !foreign::is_twin_tracked(lock)
        && is_here(ctx, lock)
        && foreign::is_meant(ctx, lock)
        && foreign::is_ours_to_track(ctx, lock);
    if !is_its {
        watch::forget(lock);
        return false;
    }
    let may_be_ours = touch.loaded && watch::may_be_ours(ctx, lock);
    if may_be_ours || foreign::has_shared_holders(ctx, lock) {
        let names = Names::of(&lock.name);
        // Where a key has another type, there is nothing to be found.
        let _ = step_on(ctx, &names, touch.state(), None, |step| {
            step.state.tracked.may_be_ours |= may_be_ours;
            step.look();
            Ok(())
        });
    } else {
        watch::look(ctx, lock);
    }
    true
}

/// Whether this node has the lock's slot. If not, a lock with waiters is remembered as arriving.
fn is_here(ctx: &Ctx, lock: &LockId) -> bool {
    if !in_cluster() {
        return true;
    }
    if !names::one_slot(&lock.name) {
        return false;
    }
    let is_here = frozen::is_here(ctx, lock);
    if !is_here && foreign::is_ours_to_track(ctx, lock) {
        arriving(|arriving| arriving.add(lock));
        keep_watch(ctx);
    } else {
        arriving(|arriving| arriving.remove(lock));
    }
    is_here
}
