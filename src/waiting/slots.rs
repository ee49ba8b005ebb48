//! In a cluster: locks whose keys may be at another node. Their slot is being moved, has left, or has not arrived yet,
//! or the cluster is down for this node.
//!
//! A lock whose keys are not all here is frozen ([`Place::Frozen`]): its holder can release and renew it where its key
//! is, and nothing else happens, because this node may not have the whole queue. Waiters stay blocked, as in BLPOP,
//! unless the cluster is down: then they are sent away. Frozen locks are checked ten times a second, until one of these
//! is true:
//!
//! - all keys are here: the lock is no longer frozen. If it came from another node, that node has sent the
//!   waiters here, and they get the time of a turn to arrive;
//! - none of them is: the lock has left. What is known of it is forgotten ([`forget_if_gone`]); blocked waiters get
//!   TRYAGAIN, ask again, and the server says where: they find their places there.
//!
//! The node that receives the slot leaves a lock alone while it has only the lock's keys and not yet the slot
//! ([`Place::Arriving`]): the slot is being migrated key by key, or as a whole.
//!
//! Moving a key raises a key event, so it is noticed at once. Slots can also leave without an event,
//! so the slots of all locks with waiters are checked once a second.

use std::collections::HashMap;

use crate::keyspace::{Names, QueueView, names};
use crate::lock::{Millis, Tick};
use crate::server::cluster::{Migration, SlotState};
use crate::server::{Ctx, in_cluster, is_replica};

use super::clients;
use super::conditions::{go_ahead_of_the_clock, grant_grace, slot_state, slots_have_come, tick};
use super::foreign::forget_if_gone;
use super::record::{LockId, Place};
use super::stable::Slots;
use super::state::{ensure_before_sleep, known_slots, table, touch};
use super::step::SLOTS_ON_THE_MOVE;

/// Milliseconds between two looks at the slots of all locks.
const ALL_SLOTS: Millis = 1000;

/// The timer has rung: looks at slots, if that is due.
pub fn look(ctx: &Ctx) {
    if !in_cluster() || is_replica() || !is_due(|slots| &mut slots.moving_seen, SLOTS_ON_THE_MOVE) {
        return;
    }
    look_at_arriving(ctx);
    if is_due(|slots| &mut slots.all_seen, ALL_SLOTS) {
        look_at_slots(ctx);
    }
    if ctx.cluster_is_down() {
        clients::while_down(ctx);
    } else {
        look_at_frozen(ctx);
    }
}

/// Whether as many milliseconds have passed since this instant, which is now from here on.
fn is_due(seen: fn(&mut Slots) -> &mut Tick, time: Millis) -> bool {
    let now = tick();
    known_slots(|slots| {
        let seen = seen(slots);
        let is_due = now >= seen.after(time);
        if is_due {
            *seen = now;
        }
        is_due
    })
}

/// Looks at all locks whose slot is not wholly here: those that have left are forgotten, the others are looked at. One
/// lock of each slot is checked.
pub fn look_at_slots(ctx: &Ctx) {
    let locks = table(|table| table.all(None));
    let mut states = HashMap::new();
    for lock in locks {
        let slot = names::slot(&lock.name);
        let state = states.entry(slot);
        let state = *state.or_insert_with(|| slot_state_of(ctx, &lock));
        if state == SlotState::Down || state == SlotState::Moving && !forget_if_gone(ctx, &lock) {
            touch(&lock, QueueView::AsLeft);
        }
    }
}

fn look_at_frozen(ctx: &Ctx) {
    let mut back = false;
    for lock in table(|table| table.all_at(Place::Frozen)) {
        match slot_state_of(ctx, &lock) {
            SlotState::Here => {
                back = true;
                table(|table| table.set_place(&lock, Place::Here));
                touch(&lock, QueueView::Touched);
            }
            SlotState::Down => (),
            SlotState::Moving => {
                forget_if_gone(ctx, &lock);
            }
        }
    }
    if back {
        grant_grace();
    }
}

/// Locks whose slot has become this node's own are looked at as if they had just been loaded.
pub fn look_at_arriving(ctx: &Ctx) {
    let mut here = HashMap::new();
    for lock in table(|table| table.all_at(Place::Arriving)) {
        let slot = names::slot(&lock.name);
        let is_here = || slot_state_of(ctx, &lock) == SlotState::Here;
        if *here.entry(slot).or_insert_with(is_here) {
            table(|table| table.set_place(&lock, Place::Here));
            touch(&lock, QueueView::Loaded);
        }
    }
    if here.into_values().any(|is_here| is_here) {
        slots_have_come();
    }
}

fn slot_state_of(ctx: &Ctx, lock: &LockId) -> SlotState {
    if ctx.select_db(lock.db) {
        let tracked = table(|table| table.is_shared(lock.db, &lock.name));
        slot_state(ctx, &Names::of(&lock.name), tracked)
    } else {
        SlotState::Here
    }
}

/// Slots move as a whole (see [`crate::server::cluster`]). Their locks are dealt with in this very iteration. True if
/// the keys of slots that have come must be looked for: their import began unseen.
pub fn migrate(what: Migration) -> bool {
    ensure_before_sleep();
    if what == Migration::ImportCompleted {
        // A token may be requested before the server has recorded that the slots are its own.
        go_ahead_of_the_clock();
    }
    known_slots(|slots| {
        let seen = slots.imports;
        match what {
            Migration::ImportStarted => {
                slots.imports = seen.saturating_add(1);
                // If the slots were here a moment ago, what is known of their locks is forgotten before they return.
                slots.have_gone = true;
            }
            Migration::ImportAborted => slots.imports = seen.saturating_sub(1),
            Migration::ImportCompleted => {
                slots.imports = seen.saturating_sub(1);
                slots.have_come = true;
                return seen == 0;
            }
            Migration::ExportCompleted => slots.have_gone = true,
        }
        false
    })
}
