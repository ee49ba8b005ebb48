//! The state of `waiting`, in one struct behind one thread-local: the server calls the module
//! on its main thread only.
//!
//! Each part is borrowed only for a moment, inside one of the short functions below, and never
//! across a call that can come back into the module. The parts themselves know nothing of this
//! file, nor of each other.

use std::cell::{Cell, RefCell};

use crate::keyspace::{QueueView, Taken};
use crate::lock::{Heard, Listening, Millis, Tick};
use crate::server::{events, is_replica};
use crate::stats::Stats;

use super::connections::{Blocked, HandOffs, Sessions};
use super::record::{Grant, LockId, Work};
use super::slots::Slots;
use super::table::Table;

/// All state of `waiting`, by the file that it belongs to. Those that are not public have functions of their own below.
#[derive(Default)]
pub struct Waiting {
    table: RefCell<Table>,
    blocked: RefCell<Blocked>,
    sessions: RefCell<Sessions>,
    hand_offs: RefCell<HandOffs>,
    stats: RefCell<Stats>,
    /// For how long the server has not listened to its clients.
    listening: RefCell<Listening>,
    /// [`step`](mod@super::step): whether one is under way, since steps do not nest.
    pub stepping: Cell<bool>,
    /// For the next step, cleared.
    pub spare: Cell<Option<Box<Taken>>>,
    /// [`conditions`](super::conditions): the greatest token that was given, or may have been given by the server
    /// before this one.
    pub greatest_token: Cell<i64>,
    /// Until when waiters that are found in the keys count as alive.
    pub grace: Cell<Heard>,
    /// How far the listening clock was behind at the last step.
    pub behind: Cell<Millis>,
    /// Until when permissions may have changed last.
    pub permissions_change: Cell<Tick>,
    /// [`event_loop`](super::event_loop): how many iterations have had nothing to do.
    pub idle: Cell<u8>,
    /// Whether the hook at the end of this one is still to come.
    pub in_iteration: Cell<bool>,
    /// Whether the module has seen its first, with all data loaded.
    pub has_begun: Cell<bool>,
    /// [`slots`](super::slots): in a cluster.
    slots: RefCell<Slots>,
    /// [`work`](super::work): the database and the cursor to which the walk has come over the keys that were there
    /// before the module. While it goes on, a lock may have waiters or shared holders that were not looked at yet.
    pub scan: Cell<Option<(i32, u64)>>,
}

thread_local! {
    static WAITING: Waiting = Waiting::default();
}

/// The whole state: for the parts that are set and read in one go.
pub fn waiting<T>(body: impl FnOnce(&Waiting) -> T) -> T {
    WAITING.with(body)
}

pub fn table<T>(body: impl FnOnce(&mut Table) -> T) -> T {
    waiting(|waiting| body(&mut waiting.table.borrow_mut()))
}

pub fn blocked<T>(body: impl FnOnce(&mut Blocked) -> T) -> T {
    waiting(|waiting| body(&mut waiting.blocked.borrow_mut()))
}

pub fn known_slots<T>(body: impl FnOnce(&mut Slots) -> T) -> T {
    waiting(|waiting| body(&mut waiting.slots.borrow_mut()))
}

/// Which locks are bound to which connection.
pub fn sessions<T>(body: impl FnOnce(&mut Sessions) -> T) -> T {
    waiting(|waiting| body(&mut waiting.sessions.borrow_mut()))
}

pub fn hand_offs<T>(body: impl FnOnce(&mut HandOffs) -> T) -> T {
    waiting(|waiting| body(&mut waiting.hand_offs.borrow_mut()))
}

pub fn listening<T>(body: impl FnOnce(&mut Listening) -> T) -> T {
    waiting(|waiting| body(&mut waiting.listening.borrow_mut()))
}

pub fn stats<T>(body: impl FnOnce(&mut Stats) -> T) -> T {
    waiting(|waiting| body(&mut waiting.stats.borrow_mut()))
}

/// Notes work about a lock. It is done when this iteration of the event loop ends; if its end has been handled
/// already, the next iteration begins at once. A replica has none: its keys are the master's.
pub fn note(lock: &LockId, work: impl FnOnce(&mut Work)) {
    if !is_replica() && table(|table| table.note(lock, work)) {
        ensure_before_sleep();
    }
}

/// Notes that a lock's keys were touched from outside the module.
pub fn touch(lock: &LockId, view: QueueView) {
    note(lock, |work| work.touch(view));
}

/// A hand-off is lost: the lock must be taken back, unless its owner knows the token by now.
pub fn hand_off_lost(grant: Grant) {
    if hand_offs(|hand_offs| hand_offs.end(grant.token)) {
        let lock = grant.lock.clone();
        note(&lock, |work| work.lost.push(grant));
    }
}

/// The holder of a lock was told its token, on whichever connection: no hand-off with this token is taken back.
pub fn token_known(lock: &LockId, token: i64) {
    hand_offs(|hand_offs| hand_offs.end(token));
    table(|table| {
        if let Some(record) = table.record(lock.db, &lock.name) {
            record.work.lost.retain(|grant| grant.token != token);
        }
    });
}

/// Makes sure that [`event_loop::before_sleep`](super::event_loop::before_sleep) runs before the server sleeps.
/// If it has run in this iteration already, the next iteration begins at once.
pub fn ensure_before_sleep() {
    follow_iterations();
    if !waiting(|waiting| waiting.in_iteration.get()) {
        events::hurry();
    }
}

/// From now on the module is told of iterations of the event loop. It may have missed the end of this one.
pub fn follow_iterations() {
    waiting(|waiting| waiting.idle.set(0));
    if events::follow_iterations() {
        waiting(|waiting| waiting.in_iteration.set(false));
    }
}

/// Iterations without anything to do after which the module is not told of them any more: a lock that is handed on
/// all the time has no waiters now and then.
const IDLE: u8 = 16;

/// An iteration ends: whether the module has to be told of the next one.
pub fn rest_if_idle() {
    let is_busy = table(|table| !table.is_empty() || table.noted() > 0)
        || blocked(|blocked| blocked.count()) > 0
        || waiting(|waiting| waiting.scan.get().is_some() || !waiting.has_begun.get());
    waiting(|waiting| {
        let idle = if is_busy { 0 } else { waiting.idle.get() + 1 };
        waiting.idle.set(idle);
        if idle == IDLE {
            waiting.idle.set(0);
            events::rest();
        }
    });
}
