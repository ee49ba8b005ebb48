//! Notes of work that has to wait until no command is running.
//!
//! The server's callbacks (a connection closes, a key changes, a reply cannot be delivered) can come in the
//! middle of another client's command, and many at once. So they only take a note here, and the locks
//! are changed between commands: when an iteration of the event loop begins and when it ends. Many waiters
//! of one lock then leave the queue in one step. Until then the rules know them as gone and never hand a
//! lock to them.
//!
//! This file only holds the notes. They are processed in [`noted`](super::noted) and
//! [`touched`](super::touched).

use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::fast::RandomState;

use crate::keyspace::{QueueView, names};
use crate::lock::{Connection, Owner};

use super::id::LockId;
use super::shrink::give_back;
use super::touch::Touch;

/// The most locks in one batch: with a hundred thousand to process, the server must answer other clients
/// in between.
pub const AT_ONCE: usize = 200;

/// What is still to be done.
#[derive(Debug, Default)]
pub struct Notes {
    /// Waiters whose connections have closed.
    gone: HashMap<LockId, VecDeque<Owner>, RandomState>,
    /// Lost hand-offs (see [`clients`](super::clients)).
    lost: Vec<Grant>,
    /// Locks that were bound to connections that have closed.
    closed: Vec<(Connection, LockId)>,
    /// Locks to look at, and how they were touched.
    touched: HashMap<LockId, Touch, RandomState>,
    /// Those of which a client takes fields, perhaps in a transaction that has not run yet.
    losing_fields: HashSet<LockId, RandomState>,
    /// The queue that was touched last: a script can touch one thousands of times, which needs one note.
    last_touched: Option<(i32, Box<[u8]>)>,
    /// Waiters of locks that could not be changed because a key has another type.
    stuck_gone: Vec<(LockId, Owner)>,
    stuck_closed: Vec<(Connection, LockId)>,
    /// Hand-offs that were replied in this iteration, with the receiver's connection.
    replied: Vec<(Connection, Grant)>,
    /// Locks whose holders have asked again with ONCE in this iteration, and their tokens.
    known: HashSet<(LockId, i64), RandomState>,
}

/// A hand-off to a blocked waiter.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The lock.
    pub lock: LockId,
    /// Its new holder.
    pub owner: Owner,
    /// The token.
    pub token: i64,
    /// The connection that the lock is bound to.
    pub session: Option<Connection>,
}

/// Taking notes.
impl Notes {
    /// A waiter's connection has closed.
    pub fn waiter_gone(&mut self, lock: LockId, owner: Owner) {
        self.gone.entry(lock).or_default().push_back(owner);
    }

    /// A hand-off is lost: the lock is to be taken back.
    pub fn hand_off_lost(&mut self, grant: Grant) {
        self.lost.push(grant);
    }

    /// Locks were bound to a connection that has closed.
    pub fn session_closed(&mut self, connection: Connection, locks: Vec<LockId>) {
        let closed = locks.into_iter().map(|lock| (connection, lock));
        self.closed.extend(closed);
    }

    /// Notes that a lock's keys were touched from outside the module.
    pub fn touch(&mut self, lock: LockId, touch: Touch) {
        self.touched.entry(lock).or_default().add(touch);
    }

    /// A client takes fields out of a lock's hash, now or in a transaction.
    pub fn takes_fields(&mut self, lock: LockId) {
        self.losing_fields.insert(lock.clone());
        self.touch(lock, Touch::QUEUE);
    }

    /// The transactions that take fields out of these locks may be running.
    pub fn touch_losing(&mut self) {
        for lock in self.losing_fields.clone() {
            self.touch(lock, Touch::QUEUE);
        }
    }

    /// Notes that the key of a queue or of its scores was touched from outside the module.
    pub fn touch_queue_key(&mut self, db: i32, key: &[u8], touch: Touch) {
        let Some(of) = names::queue_of(key) else {
            return;
        };
        let last = self.last_touched.as_ref();
        let noted = last.is_some_and(|(last_db, last)| *last_db == db && **last == *of);
        if noted && !touch.loaded {
            return;
        }
        let Some(locks) = names::locks_of(key) else {
            return;
        };
        for name in locks.into_iter().flatten() {
            self.touch(LockId::new(db, name), touch);
        }
        self.last_touched = Some((db, Box::from(of)));
    }

    /// The reply to a hand-off was made, and will be written to this connection.
    pub fn hand_off_replied(&mut self, connection: Connection, grant: Grant) {
        self.replied.push((connection, grant));
    }

    /// Notes that the holder has asked again with ONCE, on any connection, and so knows that it holds
    /// the lock. A hand-off with this token is not taken back if its receiver is gone.
    pub fn holder_knows(&mut self, lock: LockId, token: i64) {
        self.known.insert((lock, token));
    }

    /// A waiter whose connection has closed could not leave: a key has another type.
    pub fn gone_is_stuck(&mut self, lock: LockId, owner: Owner) {
        self.stuck_gone.push((lock, owner));
    }

    /// A lock bound to a closed connection could not be given up: a key has another type.
    pub fn closed_is_stuck(&mut self, connection: Connection, lock: LockId) {
        self.stuck_closed.push((connection, lock));
    }

    /// Retries what could not be done because a key had another type. Called when a lock's keys are touched
    /// from outside the module, and whenever a lock is due; such a lock is due every second.
    pub fn retry_stuck(&mut self) {
        for (lock, owner) in std::mem::take(&mut self.stuck_gone) {
            self.waiter_gone(lock, owner);
        }
        let closed = std::mem::take(&mut self.stuck_closed);
        self.closed.extend(closed);
    }
}

/// Reading them.
impl Notes {
    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.gone.is_empty()
            && self.lost.is_empty()
            && self.closed.is_empty()
            && self.touched.is_empty()
    }

    /// Whether there is nothing that the next iteration has to know.
    pub fn are_none(&self) -> bool {
        self.is_idle() && self.replied.is_empty() && self.known.is_empty()
    }

    /// Whether the keys of any lock were touched from outside the module.
    pub fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Whether a client has taken fields out of a lock's hash, or may in a transaction.
    pub fn may_lose_fields(&self) -> bool {
        !self.losing_fields.is_empty()
    }

    /// How a lock's queue was touched from outside the module, for the step that begins now. The lock is still
    /// looked at when the iteration ends.
    pub fn queue_touched(&mut self, db: impl FnOnce() -> i32, lock: &[u8]) -> QueueView {
        if self.touched.is_empty() {
            return QueueView::AsLeft;
        }
        self.last_touched = None;
        let touch = self.touched.get_mut(&LockId::new(db(), lock));
        touch.map_or(QueueView::AsLeft, |touch| std::mem::take(touch).state())
    }

    /// Takes out the hand-off that was replied to a connection in this iteration.
    pub fn take_replied(&mut self, connection: Connection) -> Option<Grant> {
        let mut replied = self.replied.iter();
        let index = replied.position(|(receiver, _)| *receiver == connection)?;
        Some(self.replied.swap_remove(index).1)
    }

    /// Takes out some of the waiters of one lock that are gone, in the order in which they went.
    pub fn take_some_gone(&mut self) -> Option<(LockId, Vec<Owner>)> {
        let (lock, owners) = self.gone.iter_mut().next()?;
        let lock = lock.clone();
        if owners.len() > AT_ONCE {
            let some = owners.drain(..AT_ONCE).collect();
            return Some((lock, some));
        }
        let owners = self.gone.remove(&lock)?;
        give_back(&mut self.gone);
        Some((lock, owners.into()))
    }

    /// Takes out the lost hand-offs, except those that the holder knows of by now.
    pub fn take_lost(&mut self) -> Vec<Grant> {
        let known = &self.known;
        let unknown = |grant: &Grant| !known.contains(&(grant.lock.clone(), grant.token));
        self.lost.retain(unknown);
        std::mem::take(&mut self.lost)
    }

    /// Takes out one lock that was bound to a connection that has closed.
    pub fn take_closed(&mut self) -> Option<(Connection, LockId)> {
        let last = self.closed.pop();
        if self.closed.is_empty() {
            self.closed = Vec::new();
        }
        last
    }

    /// Some of the locks that were touched. A lock without a queue costs little to check, so the batch grows
    /// with the backlog, which stays bounded however fast other clients write.
    pub fn some_touched(&self) -> Vec<LockId> {
        let most = AT_ONCE.max(self.touched.len() / 8);
        self.touched.keys().take(most).cloned().collect()
    }

    /// How a lock was touched; the note is dropped.
    pub fn take_touch(&mut self, lock: &LockId) -> Option<Touch> {
        self.touched.remove(lock)
    }

    /// Takes out all locks that were touched.
    pub fn take_touched(&mut self) -> impl Iterator<Item = (LockId, Touch)> + use<> {
        std::mem::take(&mut self.touched).into_iter()
    }

    /// Gives memory back after a crowd of touched locks.
    pub fn shrink_touched(&mut self) {
        give_back(&mut self.touched);
    }
}

/// Forgetting them.
impl Notes {
    /// An iteration begins: receivers may have read their tokens by now, so hand-offs are not taken back any more.
    pub fn forget_replied(&mut self) {
        self.replied.clear();
    }

    /// Forgets what holders know, if there is no hand-off to be taken back.
    pub fn forget_known(&mut self) {
        if self.lost.is_empty() && !self.known.is_empty() {
            self.known = HashSet::default();
        }
    }

    /// An iteration ends: what was noted of keys and channels is out of date.
    pub fn forget_seen(&mut self) {
        self.last_touched = None;
    }

    /// From now on a look at each lock finds what a transaction takes out of it.
    pub fn forget_losing(&mut self) {
        self.losing_fields.clear();
    }

    /// Two databases have changed places, and sessions go with their keys.
    pub fn swap(&mut self, one: i32, other: i32) {
        for (_, lock) in self.closed.iter_mut().chain(&mut self.stuck_closed) {
            *lock = lock.clone().swapped(one, other);
        }
    }

    /// Forgets the notes about waiters: the server is a replica now.
    pub fn forget_waiters(&mut self) {
        *self = Self {
            touched: std::mem::take(&mut self.touched),
            ..Self::default()
        };
    }
}
