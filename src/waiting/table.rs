//! The locks that this server knows something about: those with waiters, a session or shared holders, and those that
//! have work.
//!
//! A table of data: it reads no key and no clock, and has no effects. Each lock that is tracked is also in the
//! [`schedule`](super::schedule), so that none is forgotten.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

use foldhash::fast::RandomState;

use crate::keyspace::{Tracked, names};
use crate::lock::{Due, Millis, Now, Presence, Tick, Waiter, give_back};
use crate::server::Ctx;

use super::record::{LockId, Rank, Record};
use super::schedule::Schedule;

type Records = HashMap<Rc<[u8]>, Record, RandomState>;

/// Milliseconds after which a lock is looked at again, whatever its deadlines. Key events report most changes from
/// outside the module. The events of hashes are not listened to: each HSET of any client would pay for them. So fields
/// that were taken out, or have expired, are found then, and the waiters do not wait for a holder that is gone.
const ROUND: Millis = 900;
/// The most locks that are looked at in a millisecond for that, which costs about a fiftieth of the time: with more
/// than some four thousand of them, a round takes longer.
const LOOKS: usize = 5;

/// All locks. One timer of the server serves them all: it is set for the first that is due by either clock.
#[derive(Default)]
pub struct Table {
    databases: HashMap<i32, Records, RandomState>,
    /// When each lock is due that is tracked.
    pub schedule: Schedule,
    /// Those that are tracked, each database's in the order in which it began.
    order: BTreeMap<Rank, Rc<[u8]>>,
    /// The greatest number that a lock was tracked under.
    last_number: u64,
    /// Those that have work ([`noted`](super::noted)).
    pub(super) noted: VecDeque<LockId>,
    /// Number of locks that are tracked and whose whole name is in braces.
    braced: usize,
}

impl Table {
    /// Whether no lock is tracked.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Number of locks that are tracked.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn get(&self, db: i32, name: &[u8]) -> Option<&Record> {
        self.databases.get(&db)?.get(name)
    }

    pub fn record(&mut self, db: i32, name: &[u8]) -> Option<&mut Record> {
        self.databases.get_mut(&db)?.get_mut(name)
    }

    /// As [`record`](Self::record); there is one from now on.
    pub(super) fn make(&mut self, id: &LockId) -> &mut Record {
        let locks = self.databases.entry(id.db).or_default();
        let name = Rc::clone(&id.name);
        locks.entry(name).or_insert_with(|| Record::new(id.clone()))
    }

    /// Whether a lock is tracked, and to be looked after: where scripts run as Lua, a FAIRLOCK client must rely on it.
    pub fn looks_after(&self, id: &LockId, intercepts: bool) -> bool {
        let is_relied_on = || self.tracked(id).is_some_and(Tracked::is_relied_on);
        self.contains(id.db, &id.name) && (intercepts || is_relied_on())
    }

    /// Whether a lock is tracked.
    pub fn contains(&self, db: i32, name: &[u8]) -> bool {
        self.get(db, name).is_some_and(Record::is_tracked)
    }

    /// The twin of a lock, if that is the one of the two that is tracked.
    pub fn tracked_twin(&self, db: impl FnOnce() -> i32, name: &[u8]) -> Option<Vec<u8>> {
        // A name without braces is the rule, and to make the other one costs more than this.
        let may_be = self.braced > 0 || names::unbraced(name).is_some();
        let twin = may_be.then(|| names::twin(name))??;
        self.contains(db(), &twin).then_some(twin)
    }

    /// Whether a command has named a lock since it is tracked.
    pub fn is_named(&self, db: i32, name: &[u8]) -> bool {
        let record = self.get(db, name);
        record.is_some_and(|record| record.tracked.is_named)
    }

    /// All locks of a database, or of all, that are tracked.
    pub fn all(&self, db: Option<i32>) -> Vec<LockId> {
        let locks = self.order.iter().map(|((of, _), name)| (*of, name));
        let of_db = locks.filter(|(of, _)| db.is_none_or(|db| db == *of));
        let ids = of_db.map(|(db, name)| LockId {
            db,
            name: Rc::clone(name),
        });
        ids.collect()
    }

    /// Whether not all keys of a lock are at this node.
    pub fn is_away(&self, db: i32, name: &[u8]) -> bool {
        self.get(db, name).is_some_and(|record| record.is_away)
    }

    /// All keys of a lock are at this node. True if they were not before.
    pub fn has_come(&mut self, db: i32, name: &[u8]) -> bool {
        let record = self.record(db, name);
        record.is_some_and(|record| std::mem::take(&mut record.is_away))
    }

    /// Not all keys of a lock are at this node any more.
    pub fn freeze(&mut self, db: i32, name: &[u8]) {
        let record = self.record(db, name);
        if let Some(record) = record.filter(|record| record.is_tracked()) {
            record.is_away = true;
        }
    }

    /// Not all keys of a lock are at this node, or the node does not own their slot yet. It is looked at again then.
    pub fn set_away(&mut self, id: &LockId, look: Tick) {
        self.make(id).is_away = true;
        self.postpone(id, look);
    }

    /// The identity of a lock. All waiters of the lock share its name, which can be long.
    pub fn id(&self, db: i32, name: &[u8]) -> LockId {
        let record = self.get(db, name);
        record.map_or_else(|| LockId::new(db, name), |record| record.id.clone())
    }

    pub fn tracked(&self, id: &LockId) -> Option<&Tracked> {
        Some(&self.get(id.db, &id.name)?.tracked)
    }

    /// Lends what is tracked of a lock, to be changed in a step and put back. `tracked` is new, and stays so if nothing
    /// is tracked.
    pub fn take_into(&mut self, tracked: &mut Tracked, db: i32, name: &[u8]) {
        if let Some(record) = self.record(db, name) {
            std::mem::swap(tracked, &mut record.tracked);
        }
    }

    /// Puts back what is tracked of a lock with waiters, a session or shared holders after a step. It is due some time,
    /// and at the latest when it is to be looked at again whatever happens.
    pub fn put(&mut self, db: i32, name: &[u8], tracked: &mut Tracked, due: Due, now: Now) {
        let round = Millis::try_from(self.len() / LOOKS).unwrap_or(Millis::MAX);
        let latest = now.tick_after(round.max(ROUND));
        let locks = self.databases.get_mut(&db);
        let Some(record) = locks.and_then(|locks| locks.get_mut(name)) else {
            self.make(&LockId::new(db, name));
            return self.put(db, name, tracked, due, now);
        };
        record.tracked = std::mem::take(tracked);
        // What is scheduled already stays, so that most steps do not move the lock.
        let scheduled = record.scheduled.tick.filter(|at| *at > now.tick());
        let look = scheduled.unwrap_or(latest);
        let due = Due {
            tick: due.tick.into_iter().chain([look]).min(),
            ..due
        };
        self.schedule.set(&record.id, &mut record.scheduled, due);
        if !record.is_tracked() {
            self.last_number += 1;
            record.number = Some(self.last_number);
            let name = Rc::clone(&record.id.name);
            self.order.insert((db, self.last_number), name);
            self.braced += usize::from(names::unbraced(&record.id.name).is_some());
        }
    }

    /// Forgets what is tracked of a lock.
    pub fn forget(&mut self, db: i32, name: &[u8]) {
        let Some(record) = self.record(db, name) else {
            return;
        };
        let Some(number) = record.number.take() else {
            return;
        };
        record.tracked = Tracked::default();
        let id = record.id.clone();
        self.order.remove(&(db, number));
        self.braced -= usize::from(names::unbraced(name).is_some());
        self.look_no_more(&id);
    }

    /// A lock that is not tracked is not looked at again.
    pub fn look_no_more(&mut self, id: &LockId) {
        // Nor is it known where its keys are.
        self.has_come(id.db, &id.name);
        self.reschedule(id, Due::default());
        self.forget_if_idle(id);
    }

    pub(super) fn forget_if_idle(&mut self, id: &LockId) {
        if let Some(locks) = self.databases.get_mut(&id.db)
            && locks.get(&id.name).is_some_and(Record::is_idle)
        {
            locks.remove(&id.name);
            give_back(locks);
        }
    }

    /// Makes a lock due at this time, and at no other.
    pub fn postpone(&mut self, id: &LockId, tick: Tick) {
        let due = Due {
            wall: None,
            tick: Some(tick),
        };
        self.reschedule(id, due);
    }

    fn reschedule(&mut self, id: &LockId, due: Due) {
        let locks = self.databases.get_mut(&id.db);
        if let Some(record) = locks.and_then(|locks| locks.get_mut(&id.name)) {
            self.schedule.set(&record.id, &mut record.scheduled, due);
        }
    }

    /// What is tracked of a lock that has left this server; it is forgotten, and so is its work.
    pub fn remove(&mut self, id: &LockId) -> Tracked {
        let mut tracked = Tracked::default();
        self.kept_work(id);
        self.take_into(&mut tracked, id.db, &id.name);
        self.forget(id.db, &id.name);
        tracked
    }

    /// At most `most` of a database's locks that are tracked, each with its number: those with numbers behind `last`.
    pub fn behind(&self, db: i32, last: u64, most: usize) -> Vec<(u64, Rc<[u8]>)> {
        let range = (Bound::Excluded((db, last)), Bound::Included((db, u64::MAX)));
        let locks = self.order.range(range).take(most);
        locks
            .map(|((_, number), name)| (*number, Rc::clone(name)))
            .collect()
    }

    /// Forgets everything, but goes on with its numbers: a listing may go on, too.
    pub fn clear(&mut self, ctx: &Ctx) {
        self.schedule.stop_timer(ctx);
        *self = Self {
            last_number: self.last_number,
            ..Self::default()
        };
    }

    /// Changes what is known of a waiter, if it is blocked under this ticket.
    pub fn change_blocked(
        &mut self,
        id: &LockId,
        owner: &[u8],
        ticket: u64,
        change: impl FnOnce(&mut Waiter),
    ) {
        if let Some(record) = self.record(id.db, &id.name) {
            record.tracked.line.change(owner, |waiter| {
                if waiter.presence == Presence::Blocked(ticket) {
                    change(waiter);
                }
            });
        }
    }

    /// What is tracked of an owner in a lock's queue.
    pub fn waiter(&self, id: &LockId, owner: &[u8]) -> Option<Waiter> {
        self.tracked(id)?.line.get(owner)
    }

    /// Whether several may hold a lock together.
    pub fn is_shared(&self, db: i32, name: &[u8]) -> bool {
        self.get(db, name)
            .is_some_and(|record| record.tracked.shared.is_some())
    }
}
