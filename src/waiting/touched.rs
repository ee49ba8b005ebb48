//! Looks at the locks whose keys were touched from outside the module, between commands.
//!
//! The keys as they are then decide, not the event: several commands may have run since.

use crate::keyspace::names;
use crate::server::{Ctx, in_cluster};

use super::deferred::{AT_ONCE, Notes};
use super::foreign;
use super::frozen;
use super::id::LockId;
use super::slice::Slice;
use super::state::{arriving, notes, table};
use super::step::{keep_watch, look};
use super::touch::Touch;

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

/// Looks at a lock that was touched from outside the module, if it is the module's. False if it has no queue.
fn look_at(ctx: &Ctx, lock: &LockId, touch: Touch) -> bool {
    // An event of a queue key names two locks, `a` and `{a}`. The cheapest checks of which one it is come first.
    let is_known = table(|table| table.contains(lock.db, &lock.name));
    let is_ours = is_known
        || ctx.select_db(lock.db)
            && !foreign::is_twin_tracked(lock)
            && is_here(ctx, lock)
            && foreign::is_meant(ctx, lock)
            && foreign::is_ours_to_track(ctx, lock);
    if is_ours {
        look(ctx, lock, touch.state());
    }
    is_ours
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
    if !is_here && foreign::has_waiters(ctx, lock) {
        arriving(|arriving| arriving.add(lock));
        keep_watch(ctx);
    } else {
        arriving(|arriving| arriving.remove(lock));
    }
    is_here
}
