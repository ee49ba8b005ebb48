//! All locks of which this server knows something: those with waiters, a session or shared holders, and those that
//! have work.
//!
//! A table of data: it reads no key and no clock, and has no effects. Each lock that is tracked is also in the
//! [`schedule`](super::schedule), so that none is forgotten.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

use foldhash::fast::RandomState;

use crate::keyspace::{QueueView, Tracked, names};
use crate::lock::{Connection, Due, Now, Owner, Presence, Session, SharedHolders, Tick, Waiter};
use crate::server::Ctx;

use super::record::{BATCH, LockId, Place, Record, Work, give_back, is_too_roomy};
use super::schedule::{Schedule, settled};

/// A lock's name, with the number of its waiters before it.
pub type Busy = (usize, Rc<[u8]>);

/// Most waiters first, then by name.
pub type Rank = (i32, Reverse<usize>, Rc<[u8]>);

fn rank(id: &LockId, waiters: usize) -> Rank {
    (id.db, Reverse(waiters), Rc::clone(&id.name))
}

type Locks = HashMap<Rc<[u8]>, Record, RandomState>;

/// What goes with a lock's key where two databases change places.
type Holders = (Option<Session>, Option<Box<SharedHolders>>, Vec<Connection>);

/// The most locks that are to be put into their order at once.
const MOVED: usize = 64;

/// All locks. One timer of the server serves them all: it is set for the first that is due by either clock.
#[derive(Debug, Default)]
pub struct Table {
    databases: HashMap<i32, Locks, RandomState>,
    /// When each lock is due that is tracked.
    pub schedule: Schedule,
    /// Those that are tracked, each database's in the order in which they are listed.
    order: BTreeSet<Rank>,
    /// Those that may have another number of waiters than `order` says. A lock that is handed on thousands of times a
    /// second loses a waiter and gets another each time, and is put into its order once.
    moved: Vec<LockId>,
    /// Those that have work.
    noted: VecDeque<LockId>,
    /// Number of locks that are tracked and whose whole name is in braces.
    braced: usize,
    /// Number of locks whose keys are not just here.
    on_the_move: usize,
}

/// Locks.
impl Table {
    /// Whether no lock is tracked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Number of locks that are tracked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    fn get(&self, db: i32, name: &[u8]) -> Option<&Record> {
        self.databases.get(&db)?.get(name)
    }

    /// A lock's record.
    pub fn record(&mut self, db: i32, name: &[u8]) -> Option<&mut Record> {
        self.databases.get_mut(&db)?.get_mut(name)
    }

    /// As [`record`](Self::record); there is one from now on.
    fn make(&mut self, id: &LockId) -> &mut Record {
        let locks = self.databases.entry(id.db).or_default();
        let name = Rc::clone(&id.name);
        locks.entry(name).or_insert_with(|| Record::new(id.clone()))
    }

    /// Whether a lock is tracked.
    #[must_use]
    pub fn contains(&self, db: i32, name: &[u8]) -> bool {
        self.get(db, name).is_some_and(|record| record.is_tracked)
    }

    /// Whether the lock of this name in braces is tracked.
    #[must_use]
    pub fn contains_braced(&self, db: impl FnOnce() -> i32, name: &[u8]) -> bool {
        self.braced > 0 && self.contains(db(), &[b"{", name, b"}"].concat())
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        self.databases.values().flat_map(HashMap::values)
    }

    /// The locks of this name that are tracked, in any database.
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Vec<LockId> {
        let records = self.databases.values().filter_map(|locks| locks.get(name));
        let tracked = records.filter(|record| record.is_tracked);
        tracked.map(|record| record.id.clone()).collect()
    }

    /// All locks of a database, or of all, that are tracked.
    #[must_use]
    pub fn all(&self, db: Option<i32>) -> Vec<LockId> {
        let records = self.records().filter(|record| record.is_tracked);
        let of_db = records.filter(|record| db.is_none_or(|db| record.id.db == db));
        of_db.map(|record| record.id.clone()).collect()
    }

    /// All locks of which anything is known; nothing is from now on.
    #[must_use]
    pub fn take_all(&mut self, ctx: &Ctx) -> Vec<LockId> {
        let all = self.records().map(|record| record.id.clone()).collect();
        self.clear(ctx);
        all
    }

    /// The locks whose keys are there.
    #[must_use]
    pub fn all_at(&self, place: Place) -> Vec<LockId> {
        if !self.is_any_on_the_move() {
            return Vec::new();
        }
        let records = self.records().filter(|record| record.place == place);
        records.map(|record| record.id.clone()).collect()
    }

    /// Remembers where a lock's keys are.
    pub fn set_place(&mut self, id: &LockId, place: Place) {
        if place == Place::Here && self.get(id.db, &id.name).is_none() {
            return;
        }
        let before = std::mem::replace(&mut self.make(id).place, place);
        self.on_the_move += usize::from(place != Place::Here);
        self.on_the_move -= usize::from(before != Place::Here);
        self.forget_if_idle(id);
    }

    /// Whether the keys of any lock are not just here.
    #[must_use]
    pub fn is_any_on_the_move(&self) -> bool {
        self.on_the_move > 0
    }

    /// The identity of a lock. All waiters of the lock share its name, which can be long.
    #[must_use]
    pub fn id(&self, db: i32, name: &[u8]) -> LockId {
        let record = self.get(db, name);
        record.map_or_else(|| LockId::new(db, name), |record| record.id.clone())
    }

    /// What is tracked of a lock.
    #[must_use]
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

    /// Puts back what is tracked of a lock after a step. Of a lock without waiters, session and shared holders nothing
    /// is kept. A lock that is never due by itself is due at `otherwise`, so that every lock is in a schedule.
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
        let locks = self.databases.get_mut(&db);
        let Some(record) = locks.and_then(|locks| locks.get_mut(name)) else {
            self.make(&LockId::new(db, name));
            return self.put(db, name, tracked, due, now, otherwise);
        };
        record.tracked = std::mem::take(tracked);
        let due = settled(record.scheduled, due, now);
        self.schedule.set(&record.id, &mut record.scheduled, due);
        if !record.is_tracked {
            record.is_tracked = true;
            record.listed = record.waiters();
            self.order.insert(rank(&record.id, record.listed));
            self.braced += usize::from(names::unbraced(name).is_some());
        } else if record.listed != record.waiters() && !record.has_moved {
            record.has_moved = true;
            self.moved.push(record.id.clone());
            if self.moved.len() == MOVED {
                self.order_moved();
            }
        }
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

    /// Forgets what is tracked of a lock.
    pub fn forget(&mut self, db: i32, name: &[u8]) {
        let locks = self.databases.get_mut(&db);
        let Some(record) = locks.and_then(|locks| locks.get_mut(name)) else {
            return;
        };
        record.tracked = Tracked::default();
        let id = record.id.clone();
        if std::mem::take(&mut record.is_tracked) {
            self.schedule
                .set(&id, &mut record.scheduled, Due::default());
            self.order.remove(&rank(&id, record.listed));
            if std::mem::take(&mut record.has_moved) {
                self.moved.retain(|moved| *moved != id);
            }
            self.braced -= usize::from(names::unbraced(name).is_some());
        }
        self.forget_if_idle(&id);
    }

    fn forget_if_idle(&mut self, id: &LockId) {
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

    /// Some of all locks, in their order: those behind `last`, if it is given.
    #[must_use]
    pub fn behind(&self, last: Option<&Rank>, most: usize) -> Vec<Rank> {
        let begin = last.map_or(Bound::Unbounded, Bound::Excluded);
        let locks = self.order.range((begin, Bound::Unbounded));
        locks.take(most).cloned().collect()
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

    /// Forgets everything.
    pub fn clear(&mut self, ctx: &Ctx) {
        self.schedule.stop_timer(ctx);
        *self = Self::default();
    }
}

/// Work.
impl Table {
    /// Notes work about a lock. True if no lock had work.
    pub fn note(&mut self, id: &LockId, note: impl FnOnce(&mut Work)) -> bool {
        let record = self.make(id);
        note(&mut record.work);
        if !std::mem::replace(&mut record.is_noted, true) {
            let id = record.id.clone();
            self.noted.push_back(id);
            return self.noted.len() == 1;
        }
        false
    }

    /// Notes again the work that could not be done, if there is any.
    pub fn note_again(&mut self, id: &LockId) -> bool {
        let record = self.get(id.db, &id.name);
        let has_work = record.is_some_and(|record| !record.work.is_none());
        has_work && self.note(id, |_| ())
    }

    /// Number of locks that have work.
    #[must_use]
    pub fn noted(&self) -> usize {
        self.noted.len()
    }

    /// The first lock that has work, and the work, which is not noted any more: of many waiters that have gone, some.
    /// The rest is noted behind that of other locks.
    #[must_use]
    pub fn take_work(&mut self) -> Option<(LockId, Work)> {
        let id = self.noted.pop_front()?;
        if is_too_roomy(self.noted.capacity(), self.noted.len()) {
            self.noted.shrink_to(self.noted.len() * 2);
        }
        let record = self.record(id.db, &id.name)?;
        record.is_noted = false;
        let mut work = std::mem::take(&mut record.work);
        if work.gone.len() > BATCH {
            record.work.gone = work.gone.split_off(BATCH);
            self.note(&id, |_| ());
        } else {
            self.forget_if_idle(&id);
        }
        Some((id, work))
    }

    /// Work could not be done, because a key has another type. It is kept until the lock is touched or due.
    pub fn keep_work(&mut self, id: &LockId, mut work: Work) {
        let kept = &mut self.make(id).work;
        work.gone.append(&mut kept.gone);
        work.lost.append(&mut kept.lost);
        work.closed.append(&mut kept.closed);
        work.touch = work.touch.max(kept.touch);
        *kept = work;
    }

    /// How a lock's queue was touched from outside the module, for the step that begins now. The lock is still
    /// looked at when the iteration ends.
    #[must_use]
    pub fn take_touch(&mut self, db: impl FnOnce() -> i32, lock: &[u8]) -> QueueView {
        if self.noted.is_empty() {
            return QueueView::AsLeft;
        }
        let record = self.record(db(), lock);
        let touch = record.and_then(|record| record.work.touch.as_mut());
        touch.map_or(QueueView::AsLeft, |touch| {
            std::mem::replace(touch, QueueView::AsLeft)
        })
    }
}

/// Single waiters and holders.
impl Table {
    /// Marks a blocked waiter whose connection has closed.
    pub fn mark_gone(&mut self, id: &LockId, owner: &[u8], ticket: u64) {
        if let Some(record) = self.record(id.db, &id.name) {
            let line = &mut record.tracked.line;
            line.change(owner, |waiter| {
                if waiter.presence == Presence::Blocked(ticket) {
                    waiter.presence = Presence::Gone;
                }
            });
        }
    }

    /// A blocked waiter was sent away and may come back: from now on it polls.
    pub fn mark_sent_away(&mut self, id: &LockId, owner: &[u8], ticket: u64, now: Now) {
        if let Some(record) = self.record(id.db, &id.name) {
            let line = &mut record.tracked.line;
            line.change(owner, |waiter| {
                if waiter.presence == Presence::Blocked(ticket) {
                    waiter.presence = Presence::Polling;
                    waiter.deadline = now.listening_after(waiter.patience);
                }
            });
        }
    }

    /// The waiters of a lock that are marked as gone.
    #[must_use]
    pub fn gone(&self, id: &LockId) -> Vec<Owner> {
        let tracked = self.tracked(id);
        let waiters = tracked.into_iter().flat_map(|tracked| tracked.line.iter());
        let gone = waiters.filter(|(_, waiter)| waiter.presence == Presence::Gone);
        gone.map(|(owner, _)| Owner::clone(owner)).collect()
    }

    /// What is tracked of an owner in a lock's queue.
    #[must_use]
    pub fn waiter(&self, id: &LockId, owner: &[u8]) -> Option<Waiter> {
        self.tracked(id)?.line.get(owner)
    }

    /// Whether a lock is bound to a connection for this owner.
    #[must_use]
    pub fn is_session(&self, id: &LockId, owner: &[u8]) -> bool {
        let Some(tracked) = self.tracked(id) else {
            return false;
        };
        match &tracked.shared {
            Some(shared) => shared
                .get(owner)
                .is_some_and(|holder| holder.session().is_some()),
            None => tracked.sessions().any(|session| *session.owner == *owner),
        }
    }

    /// Whether several may hold a lock together.
    #[must_use]
    pub fn is_shared(&self, id: &LockId) -> bool {
        self.tracked(id)
            .is_some_and(|tracked| tracked.shared.is_some())
    }

    /// When an owner became one of the shared holders of a lock here, by the steady clock in microseconds.
    #[must_use]
    pub fn shared_since(&self, id: &LockId, owner: &[u8]) -> Option<u64> {
        self.tracked(id)?.shared.as_ref()?.get(owner)?.since
    }

    /// Two databases have changed places. Waiters stay where their connections are; holders
    /// go with the key that they hold. Returns the locks that may have changed.
    pub fn swap(&mut self, one: i32, other: i32, now: Now) -> Vec<LockId> {
        let databases = [one, other].map(|db| self.databases.get(&db));
        let names = databases.into_iter().flatten().flat_map(HashMap::keys);
        let names: BTreeSet<Rc<[u8]>> = names.cloned().collect();
        let mut both = Vec::new();
        for name in names {
            let first = self.take_holders(one, &name);
            let second = self.take_holders(other, &name);
            self.put_holders(one, &name, second, now);
            self.put_holders(other, &name, first, now);
            for db in [one, other] {
                let name = Rc::clone(&name);
                both.push(LockId { db, name });
            }
        }
        both
    }

    fn take_holders(&mut self, db: i32, name: &[u8]) -> Holders {
        let Some(record) = self.record(db, name) else {
            return Holders::default();
        };
        let (tracked, work) = (&mut record.tracked, &mut record.work);
        (
            tracked.session.take(),
            tracked.shared.take(),
            std::mem::take(&mut work.closed),
        )
    }

    fn put_holders(&mut self, db: i32, name: &Rc<[u8]>, holders: Holders, now: Now) {
        let (session, shared, closed) = holders;
        let mut tracked = Tracked::default();
        self.take_into(&mut tracked, db, name);
        tracked.session = session;
        tracked.shared = shared;
        // It is looked at in this very iteration, which schedules it properly.
        let due = Due {
            wall: None,
            tick: Some(0),
        };
        self.put(db, name, &mut tracked, due, now, 0);
        if !closed.is_empty() {
            let name = Rc::clone(name);
            self.note(&LockId { db, name }, |work| work.closed.extend(closed));
        }
    }
}
