//! One record for each lock: all that this server knows of it beyond its keys, and what is still to be done about it.
//!
//! Data only: nothing here reads a key or a clock, or has effects.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::keyspace::{QueueView, Tracked};
use crate::lock::{Connection, Due, Owner, Tick};

/// A lock of one database.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId {
    pub db: i32,
    pub name: Rc<[u8]>,
}

impl LockId {
    /// The lock of this name in this database.
    pub fn new(db: i32, name: &[u8]) -> Self {
        let name = Rc::from(name);
        Self { db, name }
    }
}

/// The place of a lock among all that are tracked: its database, and the number under which it is tracked.
pub type Rank = (i32, u64);

/// A hand-off to a blocked waiter.
#[derive(Clone, Debug)]
pub struct Grant {
    pub lock: LockId,
    pub owner: Owner,
    pub token: i64,
    /// When it was decided.
    pub at: Tick,
    pub session: Option<Connection>,
}

/// The most waiters that leave the queue in one step, and the most locks that are looked at in one iteration: with a
/// hundred thousand to process, the server must answer other clients in between.
pub const WORK_BATCH: usize = 200;

/// What is still to be done about a lock.
///
/// The server's callbacks (a connection closes, a key changes, a reply cannot be delivered) can come in the
/// middle of another client's command, and many at once. So they only note work here. It is done between commands,
/// in one step. Until then the rules know waiters that have gone as such, and never hand a lock to them.
#[derive(Default)]
pub struct Work {
    /// How its keys were touched from outside the module: the lock must be looked at.
    pub touch: Option<QueueView>,
    /// Waiters whose connections have closed, in the order in which they went.
    pub gone: VecDeque<Owner>,
    /// Lost hand-offs (see [`clients`](super::clients)).
    pub lost: Vec<Grant>,
    /// Connections that have closed, and the holders that relied on them.
    pub closed: VecDeque<(Owner, Connection)>,
}

impl Work {
    /// Its keys were touched from outside the module, perhaps once more.
    pub fn touch(&mut self, view: QueueView) {
        self.touch = self.touch.max(Some(view));
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.touch.is_none() && self.is_touch_only()
    }

    /// Whether there is none but to look at the lock.
    pub fn is_touch_only(&self) -> bool {
        self.gone.is_empty() && self.lost.is_empty() && self.closed.is_empty()
    }
}

/// One lock.
pub struct Record {
    pub id: LockId,
    /// What the rules know beyond the keys.
    pub tracked: Tracked,
    /// It has waiters, a session or shared holders: the lock is the module's, and is tracked under this number.
    pub number: Option<u64>,
    pub work: Work,
    /// It is on the list of locks with work.
    pub is_noted: bool,
    /// In a cluster: not all of its keys are at this node any more, and it is frozen. Or it is not tracked, and its
    /// keys are here before this node owns their slot ([`slots`](super::slots)).
    pub is_away: bool,
    /// The instants for which it is scheduled.
    pub scheduled: Due,
}

impl Record {
    /// Of a lock of which nothing is known.
    pub fn new(id: LockId) -> Self {
        Self {
            id,
            tracked: Tracked::default(),
            number: None,
            work: Work::default(),
            is_noted: false,
            is_away: false,
            scheduled: Due::default(),
        }
    }

    pub fn is_tracked(&self) -> bool {
        self.number.is_some()
    }

    /// Whether there is nothing to be kept.
    pub fn is_idle(&self) -> bool {
        !self.is_tracked()
            && !self.is_noted
            && self.work.is_none()
            && self.scheduled == Due::default()
    }
}
