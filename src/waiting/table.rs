//! What this server knows of each lock with waiters, and when each is due.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use crate::keyspace::Known;
use crate::lock::{Millis, Presence};
use crate::server::Ctx;
use crate::server::timer::{self, Alarm, Timer};

/// A lock of one database.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId {
    /// The database's number.
    pub db: i32,
    /// The lock's key.
    pub name: Rc<[u8]>,
}

#[derive(Debug, Default)]
struct Record {
    known: Known,
    due: Millis,
}

/// All locks with waiters. One timer of the server serves them all: it is set for the first that
/// is due.
#[derive(Debug, Default)]
pub struct Table {
    locks: HashMap<LockId, Record>,
    by_due: BTreeSet<(Millis, LockId)>,
    timer: Option<(Millis, Timer)>,
}

struct Due;

impl Alarm for Due {
    fn ring(ctx: &Ctx) {
        super::TABLE.with_borrow_mut(|table| table.timer = None);
        super::look_at_due_locks(ctx);
    }
}

impl Table {
    /// What is known of a lock, to be changed in a step. Nothing if it has no waiters.
    pub fn take(&mut self, id: &LockId) -> Known {
        let Some(record) = self.locks.remove(id) else {
            return Known::default();
        };
        self.by_due.remove(&(record.due, id.clone()));
        record.known
    }

    /// Puts it back after the step. A lock without waiters is forgotten.
    pub fn put(&mut self, id: LockId, known: Known, due: Millis) {
        if known.line.is_empty() {
            return;
        }
        self.by_due.insert((due, id.clone()));
        self.locks.insert(id, Record { known, due });
    }

    /// Changes when a lock is due.
    pub fn schedule(&mut self, id: LockId, due: Millis) {
        if let Some(record) = self.locks.get_mut(&id) {
            self.by_due.remove(&(record.due, id.clone()));
            record.due = due;
            self.by_due.insert((due, id));
        }
    }

    /// The locks that are due.
    pub fn due(&self, now: Millis) -> Vec<LockId> {
        self.by_due
            .iter()
            .take_while(|(due, _)| *due < now)
            .map(|(_, id)| id.clone())
            .collect()
    }

    /// Sets the timer for the first lock that is due, and stops it if nobody waits. A timer that
    /// rings too early does no harm, so it is only set anew for an earlier time.
    pub fn set_timer(&mut self, ctx: &Ctx, now: Millis) {
        let Some((due, _)) = self.by_due.first() else {
            if let Some((_, timer)) = self.timer.take() {
                timer::stop(ctx, &timer);
            }
            return;
        };
        // A key lives through the millisecond in which it expires.
        let due = due.saturating_add(1);
        if let Some((set_for, timer)) = &self.timer {
            if *set_for <= due {
                return;
            }
            timer::stop(ctx, timer);
        }
        let delay = due.saturating_sub(now).max(1);
        self.timer = Some((due, timer::start::<Due>(ctx, delay)));
    }

    /// Marks a blocked waiter whose connection has closed.
    pub fn mark_gone(&mut self, id: &LockId, owner: &[u8], ticket: u64) {
        let Some(record) = self.locks.get_mut(id) else {
            return;
        };
        let line = &mut record.known.line;
        if let Some(mut waiter) = line.get(owner)
            && waiter.presence == Presence::Blocked(ticket)
        {
            waiter.presence = Presence::Gone;
            line.set(owner, waiter);
        }
    }

    /// Whether an owner is blocked on a lock.
    pub fn is_blocked(&self, id: &LockId, owner: &[u8]) -> bool {
        let waiter = self
            .locks
            .get(id)
            .and_then(|record| record.known.line.get(owner));
        waiter.is_some_and(|waiter| matches!(waiter.presence, Presence::Blocked(_)))
    }
}
