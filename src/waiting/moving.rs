//! Locks whose keys may be at another node of the cluster: their slot is being moved, or has left,
//! or the cluster is down for this node.
//!
//! Such a lock is frozen: its holder can release and renew it where its key is, and nothing else
//! happens, because this node may not have the whole queue. Waiters stay blocked, as in BLPOP, unless the
//! cluster is down: then they are sent away. Frozen locks are checked ten times a second, until one of these
//! is true:
//!
//! - all keys are here: the lock is no longer frozen. If it came from another node, that node has sent the
//!   waiters here, and they get the time of a turn to arrive;
//! - another node owns the slot: blocked waiters get MOVED, and find their places there.
//!
//! The node that receives the slot leaves a lock alone while it has only the lock's keys and not yet the slot
//! ([`arriving`](super::arriving)).
//!
//! Moving a key raises a key event, so it is noticed at once. Slots can also leave without an event,
//! so the slots of all locks with waiters are checked once a second.

use std::collections::HashMap;

use crate::keyspace::{Names, names};
use crate::server::Ctx;
use crate::server::cluster::SlotState;
use crate::server::nodes::Range;
use crate::server::timer::Alarm;

use super::blocked::Outcome;
use super::conditions::{go_ahead_of_the_clock, grant_grace};
use super::effects::give_outcome;
use super::foreign::has_waiters;
use super::frozen::{Frozen, Round, is_here, slot_state};
use super::id::LockId;
use super::sent_away;
use super::state::{arriving, blocked, frozen, note, sessions, table};
use super::step::keep_watch;
use super::touch::Touch;

impl Alarm for Round {
    fn ring(ctx: &Ctx) {
        let passed = frozen(Frozen::rang);
        if ctx.flags().replica() {
            frozen(Frozen::clear);
            return;
        }
        look_at_arriving(ctx);
        if frozen(|frozen| frozen.are_slots_due(passed)) {
            look_at_slots(ctx);
        }
        if ctx.cluster_is_down() {
            sent_away::while_down(ctx);
        } else {
            look_at_frozen(ctx);
        }
        keep_watch(ctx);
    }
}

/// Notes all locks whose slot is not wholly here, so that they are looked at. One lock of each slot is checked.
pub fn look_at_slots(ctx: &Ctx) {
    let locks = table(|table| table.all(None));
    let mut here = HashMap::new();
    for lock in locks {
        let slot = names::slot(&lock.name);
        let here = here.entry(slot).or_insert_with(|| is_here(ctx, &lock));
        if !*here {
            note(|notes| notes.touch(lock, Touch::LOCK));
        }
    }
}

/// Sends away the waiters for locks whose slots have left, without waiting for the timer.
pub fn send_after_slots(ctx: &Ctx) {
    if !ctx.flags().replica() && !ctx.cluster_is_down() {
        look_at_frozen(ctx);
        keep_watch(ctx);
    }
}

fn look_at_frozen(ctx: &Ctx) {
    let mut slots = None;
    let mut back = false;
    for lock in frozen(Frozen::take) {
        match slot_state_of(ctx, &lock) {
            SlotState::Here => {
                back = true;
                thaw(lock);
            }
            SlotState::Down => frozen(|frozen| frozen.stay(lock)),
            SlotState::Moving => {
                let slots = slots.get_or_insert_with(|| ctx.slots_elsewhere());
                match node_of(slots, &lock) {
                    // Keys that are here mean that the slot is arriving, not leaving.
                    Some(node) if !has_waiters(ctx, &lock) => leave(&lock, node),
                    _ => frozen(|frozen| frozen.stay(lock)),
                }
            }
        }
    }
    if back {
        grant_grace();
    }
}

/// Locks whose slot has become this node's own are looked at as if they had just been loaded.
pub fn look_at_arriving(ctx: &Ctx) {
    let mut arrived = false;
    for lock in arriving(|arriving| arriving.one_of_each_slot()) {
        if slot_state_of(ctx, &lock) == SlotState::Here {
            arrived = true;
            for lock in arriving(|arriving| arriving.take_slot_of(&lock)) {
                note(|notes| notes.touch(lock, Touch::LOADED));
            }
        }
    }
    if arrived {
        // Their waiters are on their way here.
        grant_grace();
        go_ahead_of_the_clock();
    }
}

fn slot_state_of(ctx: &Ctx, lock: &LockId) -> SlotState {
    if ctx.select_db(lock.db) {
        let tracked = table(|table| table.is_shared(lock));
        slot_state(ctx, &Names::of(&lock.name), tracked)
    } else {
        SlotState::Here
    }
}

/// The address of the other node that has this lock's slot.
fn node_of<'s>(ranges: &'s [Range], lock: &LockId) -> Option<&'s str> {
    let slot = names::slot(&lock.name);
    let range = ranges.iter().find(|range| range.slots.contains(&slot))?;
    Some(&range.node)
}

/// All keys of the lock are here: it goes on.
fn thaw(lock: LockId) {
    for owner in table(|table| table.gone(&lock)) {
        note(|notes| notes.waiter_gone(lock.clone(), owner));
    }
    note(|notes| notes.touch(lock, Touch::QUEUE));
}

/// The lock is another node's now.
fn leave(lock: &LockId, node: &str) {
    let tracked = table(|table| table.remove(lock));
    for connection in tracked.connections() {
        sessions(|sessions| sessions.unbind(connection, lock));
    }
    let slot = names::slot(&lock.name);
    // Clients whose time was up while writes were paused have not left the queue: their places have moved, too.
    let mut tickets = blocked(|blocked| blocked.held_back_from(lock));
    tickets.extend(
        tracked
            .line
            .iter()
            .filter_map(|(_, waiter)| waiter.ticket()),
    );
    for ticket in tickets {
        let node = node.to_owned();
        give_outcome(ticket, Outcome::Moved { slot, node });
    }
}
