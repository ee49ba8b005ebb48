//! What this server knows of each lock with waiters or a session.
//!
//! A table of data: it reads no key and no clock, and has no effects. Each lock in it is also in the
//! [`schedule`](super::schedule), so that none is forgotten.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::rc::Rc;

use foldhash::fast::RandomState;

use crate::keyspace::{Tracked, names};
use crate::lock::{Due, Now, Tick};
use crate::server::Ctx;

use super::id::LockId;
use super::schedule::{Schedule, settled};
use super::shrink::give_back;

/// One lock's entry.
#[derive(Debug)]
pub struct Record {
    id: LockId,
    /// What the rules know beyond the keys.
    pub tracked: Tracked,
    /// The instants for which it is scheduled: when it is due, or earlier (see [`settled`]).
    scheduled: Due,
    /// The number of waiters by which `order` has it.
    listed: usize,
    /// It is among those that have `moved`.
    has_moved: bool,
}

impl Record {
    fn new(id: LockId, tracked: Tracked) -> Self {
        Self {
            id,
            tracked,
            scheduled: Due::default(),
            listed: 0,
            has_moved: false,
        }
    }

    fn waiters(&self) -> usize {
        self.tracked.line.len()
    }
}

/// A lock's name, with the number of its waiters before it.
pub type Busy = (usize, Rc<[u8]>);

/// Most waiters first, then by name.
type Rank = (i32, Reverse<usize>, Rc<[u8]>);

fn rank(id: &LockId, waiters: usize) -> Rank {
    (id.db, Reverse(waiters), Rc::clone(&id.name))
}

type Locks = HashMap<Rc<[u8]>, Record, RandomState>;

/// The most locks that are to be put into their order at once.
const MOVED: usize = 64;

/// All locks with waiters or a session. One timer of the server serves them all: it is set for
/// the first that is due by either clock.
#[derive(Debug, Default)]
pub struct Table {
    databases: HashMap<i32, Locks, RandomState>,
    /// When each of them is due.
    pub schedule: Schedule,
    /// All of them, each database's in the order in which they are listed.
    order: BTreeSet<Rank>,
    /// Those that may have another number of waiters than `order` says. A lock that is handed on thousands of times a
    /// second loses a waiter and gets another each time, and is put into its order once.
    moved: Vec<LockId>,
    /// Number of locks whose whole name is in braces.
    braced: usize,
}

impl Table {
    /// Whether no lock is tracked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.databases.values().all(HashMap::is_empty)
    }

    /// Number of locks with waiters or a session.
    #[must_use]
    pub fn len(&self) -> usize {
        self.databases.values().map(HashMap::len).sum()
    }

    /// Whether a lock has waiters or a session that this server knows of.
    #[must_use]
    pub fn contains(&self, db: i32, name: &[u8]) -> bool {
        let locks = self.databases.get(&db);
        locks.is_some_and(|locks| locks.contains_key(name))
    }

    /// The locks of this name, in any database.
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Vec<LockId> {
        let records = self.databases.values().filter_map(|locks| locks.get(name));
        records.map(|record| record.id.clone()).collect()
    }

    /// Whether the lock of this name in braces has waiters or a session.
    #[must_use]
    pub fn contains_braced(&self, db: impl FnOnce() -> i32, name: &[u8]) -> bool {
        self.braced > 0 && self.contains(db(), &[b"{", name, b"}"].concat())
    }

    /// A lock's record.
    pub fn record(&mut self, db: i32, name: &[u8]) -> Option<&mut Record> {
        self.databases.get_mut(&db)?.get_mut(name)
    }

    /// The identity of a lock.
    #[must_use]
    pub fn id(&self, db: i32, name: &[u8]) -> LockId {
        let record = self.databases.get(&db).and_then(|locks| locks.get(name));
        record.map_or_else(|| LockId::new(db, name), |record| record.id.clone())
    }

    /// Lends what is tracked of a lock, to be changed in a step and put back. `tracked` is new, and stays so if nothing
    /// is tracked.
    pub fn take_into(&mut self, tracked: &mut Tracked, db: i32, name: &[u8]) {
        if let Some(record) = self.record(db, name) {
            std::mem::swap(tracked, &mut record.tracked);
        }
    }

    /// Puts back what is tracked of a lock after a step. A lock without waiters and session is forgotten. A lock
    /// that is never due by itself is due at `otherwise`, so that every lock is in one of the schedules.
    pub fn put(
        &mut self,
        db: i32,
        name: &[u8],
        tracked: &mut Tracked,
        mut due: Due,
        now: Now,
        otherwise: Tick,
    ) {
        if tracked.is_empty() {
            self.forget(db, name);
            return;
        }
        if due == Due::default() {
            due.tick = Some(otherwise);
        }
        self.set(db, name, std::mem::take(tracked), due, now);
    }

    fn set(&mut self, db: i32, name: &[u8], tracked: Tracked, due: Due, now: Now) {
        let locks = self.databases.entry(db).or_default();
        if let Some(record) = locks.get_mut(name) {
            record.tracked = tracked;
            let due = settled(record.scheduled, due, now);
            self.schedule.set(&record.id, &mut record.scheduled, due);
            if record.listed != record.waiters() && !record.has_moved {
                record.has_moved = true;
                self.moved.push(record.id.clone());
                if self.moved.len() == MOVED {
                    self.order_moved();
                }
            }
            return;
        }
        let id = LockId::new(db, name);
        let name = Rc::clone(&id.name);
        let mut record = Record::new(id, tracked);
        record.listed = record.waiters();
        self.order.insert(rank(&record.id, record.listed));
        self.schedule.set(&record.id, &mut record.scheduled, due);
        self.braced += usize::from(names::unbraced(&name).is_some());
        locks.insert(name, record);
    }

    /// Puts the locks that have moved into their order.
    fn order_moved(&mut self) {
        while let Some(id) = self.moved.pop() {
            let locks = self.databases.get_mut(&id.db);
            let Some(record) = locks.and_then(|locks| locks.get_mut(&id.name)) else {
                continue;
            };
            record.has_moved = false;
            let waiters = record.waiters();
            if record.listed != waiters {
                self.order.remove(&rank(&id, record.listed));
                self.order.insert(rank(&id, waiters));
                record.listed = waiters;
            }
        }
    }

    /// Forgets a lock.
    pub fn forget(&mut self, db: i32, name: &[u8]) {
        if let Some(locks) = self.databases.get_mut(&db)
            && let Some(record) = locks.remove(name)
        {
            self.schedule.remove(&record.id, record.scheduled);
            self.order.remove(&rank(&record.id, record.listed));
            if record.has_moved {
                self.moved.retain(|id| *id != record.id);
            }
            self.braced -= usize::from(names::unbraced(name).is_some());
            give_back(locks);
        }
    }

    /// Makes a lock due at this time, and at no other.
    pub fn postpone(&mut self, id: &LockId, tick: Tick) {
        let due = Due {
            wall: None,
            tick: Some(tick),
        };
        let locks = self.databases.get_mut(&id.db);
        if let Some(record) = locks.and_then(|locks| locks.get_mut(&id.name)) {
            self.schedule.set(&record.id, &mut record.scheduled, due);
        }
    }

    /// What is tracked of a lock that has left this server; it is forgotten.
    #[must_use]
    pub fn remove(&mut self, id: &LockId) -> Tracked {
        let mut tracked = Tracked::default();
        self.take_into(&mut tracked, id.db, &id.name);
        self.forget(id.db, &id.name);
        tracked
    }

    /// What is tracked of a lock.
    pub fn tracked(&self, id: &LockId) -> Option<&Tracked> {
        let record = self.databases.get(&id.db)?.get(&id.name)?;
        Some(&record.tracked)
    }

    /// The locks of a database with the number of their waiters, most waiters first, then by name;
    /// those behind `behind`, if it is given.
    pub fn busiest(&mut self, db: i32, behind: Option<&Busy>) -> impl Iterator<Item = Busy> {
        self.order_moved();
        let begin = match behind {
            Some((waiters, name)) => Bound::Excluded((db, Reverse(*waiters), Rc::clone(name))),
            None => Bound::Included((db, Reverse(usize::MAX), Rc::default())),
        };
        let locks = self.order.range((begin, Bound::Unbounded));
        locks
            .take_while(move |(of, ..)| *of == db)
            .map(|(_, waiters, name)| (waiters.0, Rc::clone(name)))
    }

    /// All locks of a database, or of all.
    #[must_use]
    pub fn all(&self, db: Option<i32>) -> Vec<LockId> {
        let databases = self.databases.iter();
        let databases = databases.filter(|(number, _)| db.is_none_or(|db| **number == db));
        databases
            .flat_map(|(db, locks)| {
                locks.keys().map(|name| LockId {
                    db: *db,
                    name: Rc::clone(name),
                })
            })
            .collect()
    }

    /// Forgets everything; the server is a replica now.
    pub fn clear(&mut self, ctx: &Ctx) {
        self.schedule.stop_timer(ctx);
        *self = Self::default();
    }
}
