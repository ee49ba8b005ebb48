//! Locks whose keys may be at another node of the cluster: their slot is being moved, or has left,
//! or the cluster is down for this node.
//!
//! Such a lock is frozen: its holder can release and renew it where its key is, and nothing else
//! happens, for nobody here can see the whole queue. Waiters stay blocked, as in BLPOP. Frozen
//! locks are looked at ten times a second, until
//!
//! - all keys are here: the lock goes on, whichever way it came. Who waits in it may have been
//!   sent here by the node that had it before, and has a turn's time to come;
//! - the slot is another node's: blocked waiters are told so (MOVED) and find their places there.
//!
//! Keys that are moved make events, by which that is noticed at once. Slots can also leave without
//! a word, so once a second the slots of all locks with waiters are looked at.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

use crate::keyspace::{Names, names};
use crate::server::cluster::{Place, Range};
use crate::server::timer::{self, Alarm, Timer};
use crate::server::{Ctx, in_cluster};

use super::client::Outcome;
use super::foreign::has_queue;
use super::table::LockId;
use super::{TABLE, client, grant_grace, session, sweep};

/// Milliseconds between two looks at frozen locks.
const SOON: u64 = 100;
/// Milliseconds between two looks at the slots of all locks with waiters.
const SELDOM: u64 = 1000;

thread_local! {
    static FROZEN: RefCell<HashSet<LockId>> = RefCell::default();
    static ALARM: RefCell<Option<(u64, Timer)>> = const { RefCell::new(None) };
    /// Milliseconds since the slots of all locks were looked at.
    static SINCE: Cell<u64> = const { Cell::new(0) };
}

struct Round;

impl Alarm for Round {
    fn ring(ctx: &Ctx) {
        let passed = ALARM.take().map_or(0, |(delay, _)| delay);
        if ctx.flags().replica() {
            clear();
            return;
        }
        SINCE.set(SINCE.get().saturating_add(passed));
        if SINCE.get() >= SELDOM {
            SINCE.set(0);
            look_at_slots(ctx);
        }
        look_at_frozen(ctx);
        keep_watch(ctx);
    }
}

/// Whether all keys of a lock are here.
#[must_use]
pub fn place_of(ctx: &Ctx, names: &Names) -> Place {
    ctx.place_of([&names.lock, &names.queue, &names.deadlines, &names.token])
}

/// Takes note of a frozen lock.
pub fn freeze(ctx: &Ctx, lock: LockId) {
    FROZEN.with_borrow_mut(|frozen| frozen.insert(lock));
    set_alarm(ctx, SOON);
}

/// In a cluster, sees to it that the locks with waiters are watched.
pub fn keep_watch(ctx: &Ctx) {
    if !in_cluster() {
        return;
    }
    if FROZEN.with_borrow(|frozen| !frozen.is_empty()) {
        set_alarm(ctx, SOON);
    } else if TABLE.with_borrow(|table| !table.is_empty()) {
        set_alarm(ctx, SELDOM);
    }
}

fn set_alarm(ctx: &Ctx, delay: u64) {
    ALARM.with_borrow_mut(|alarm| {
        if let Some((set, _)) = alarm
            && *set <= delay
        {
            return;
        }
        if let Some((_, timer)) = alarm.take() {
            timer::stop(ctx, &timer);
        }
        *alarm = Some((delay, timer::start::<Round>(ctx, delay)));
    });
}

/// Looks at the locks of slots that are not wholly here, as one lock of each slot shows.
fn look_at_slots(ctx: &Ctx) {
    let locks = TABLE.with_borrow(|table| table.all(None));
    let mut here = HashMap::new();
    for lock in locks {
        let slot = names::slot(&lock.name);
        let here = here.entry(slot).or_insert_with(|| {
            ctx.select_db(lock.db) && place_of(ctx, &Names::of(&lock.name)) == Place::Here
        });
        if !*here {
            sweep::touched(ctx, lock, false);
        }
    }
}

fn look_at_frozen(ctx: &Ctx) {
    let mut slots = None;
    let mut back = false;
    for lock in FROZEN.take() {
        let place = if ctx.select_db(lock.db) {
            place_of(ctx, &Names::of(&lock.name))
        } else {
            Place::Here
        };
        match place {
            Place::Here => {
                back = true;
                thaw(ctx, lock);
            }
            Place::Down => stay(lock),
            Place::Moving => {
                let slots = slots.get_or_insert_with(|| ctx.slots());
                match node_of(slots, &lock) {
                    // Where it arrives, the queue can be here before the slot is.
                    Some(node) if !has_queue(ctx, &lock) => leave(ctx, &lock, node),
                    _ => stay(lock),
                }
            }
        }
    }
    if back {
        grant_grace();
    }
}

fn stay(lock: LockId) {
    FROZEN.with_borrow_mut(|frozen| frozen.insert(lock));
}

/// The address of the other node that has this lock's slot.
fn node_of<'s>(ranges: &'s [Range], lock: &LockId) -> Option<&'s str> {
    let slot = i64::from(names::slot(&lock.name));
    let range = ranges.iter().find(|range| range.slots.contains(&slot))?;
    range.elsewhere.as_deref()
}

/// All keys of the lock are here: it goes on.
fn thaw(ctx: &Ctx, lock: LockId) {
    for owner in TABLE.with_borrow(|table| table.gone(&lock)) {
        sweep::remove_gone(ctx, lock.clone(), owner);
    }
    sweep::touched(ctx, lock, true);
}

/// The lock is another node's now.
fn leave(ctx: &Ctx, lock: &LockId, node: &str) {
    let known = TABLE.with_borrow_mut(|table| table.remove(lock));
    for (connection, _) in known.session.iter().flat_map(|session| &session.holders) {
        session::unbound(*connection, lock);
    }
    let slot = names::slot(&lock.name);
    for ticket in known.line.iter().filter_map(|(_, waiter)| waiter.ticket()) {
        let node = node.to_owned();
        client::unblock(ctx, ticket, Outcome::Moved { slot, node });
    }
}

/// Forgets all.
pub fn clear() {
    FROZEN.with_borrow_mut(HashSet::clear);
    SINCE.set(0);
}
