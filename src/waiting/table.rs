//! What this server knows of each lock with waiters or a session, and when each is due.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use foldhash::fast::RandomState;

use crate::keyspace::{Known, names};
use crate::lock::{Due, Millis, Now, Owner, Presence, Session, Tick, Ticket};
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

impl LockId {
    /// The lock of this name in this database.
    #[must_use]
    pub fn new(db: i32, name: &[u8]) -> Self {
        let name = Rc::from(name);
        Self { db, name }
    }

    /// Where the lock is after two databases have changed places.
    #[must_use]
    pub fn swapped(mut self, one: i32, other: i32) -> Self {
        if self.db == one {
            self.db = other;
        } else if self.db == other {
            self.db = one;
        }
        self
    }
}

#[derive(Debug)]
struct Record {
    id: LockId,
    known: Known,
    /// What it is scheduled for: when it is due or, where that has moved on since, an instant
    /// before.
    scheduled: Due,
}

impl Record {
    fn new(id: LockId, known: Known) -> Self {
        Self {
            id,
            known,
            scheduled: Due::default(),
        }
    }
}

/// When locks are due, by each of the two clocks.
#[derive(Debug, Default)]
struct Schedule {
    by_wall: BTreeSet<(Millis, LockId)>,
    by_tick: BTreeSet<(Tick, LockId)>,
}

impl Schedule {
    fn add(&mut self, id: &LockId, due: Due) {
        if let Some(at) = due.wall {
            self.by_wall.insert((at, id.clone()));
        }
        if let Some(at) = due.tick {
            self.by_tick.insert((at, id.clone()));
        }
    }

    fn remove(&mut self, id: &LockId, due: Due) {
        if let Some(at) = due.wall {
            self.by_wall.remove(&(at, id.clone()));
        }
        if let Some(at) = due.tick {
            self.by_tick.remove(&(at, id.clone()));
        }
    }

    /// The locks that are due by the wall clock. A key lives through the millisecond in which it
    /// expires.
    fn ended(&self, now: Now) -> impl Iterator<Item = &LockId> {
        let due = self.by_wall.iter();
        due.take_while(move |(at, _)| *at < now.millis())
            .map(|(_, id)| id)
    }

    /// The locks that are due by the steady clock.
    fn over(&self, now: Now) -> impl Iterator<Item = &LockId> {
        let due = self.by_tick.iter();
        due.take_while(move |(at, _)| *at <= now.tick())
            .map(|(_, id)| id)
    }

    /// Schedules a lock anew.
    fn set(&mut self, record: &mut Record, due: Due) {
        self.remove(&record.id, record.scheduled);
        self.add(&record.id, due);
        record.scheduled = due;
    }
}

/// The server's timer, as it was set.
#[derive(Debug)]
struct Armed {
    at: Tick,
    /// The wall clock less the steady clock when it was set, in milliseconds.
    offset: i64,
    timer: Timer,
}

type Locks = HashMap<Rc<[u8]>, Record, RandomState>;

/// All locks with waiters or a session. One timer of the server serves them all: it is set for
/// the first that is due by either clock.
#[derive(Debug, Default)]
pub struct Table {
    databases: HashMap<i32, Locks, RandomState>,
    schedule: Schedule,
    armed: Option<Armed>,
    /// Number of locks whose whole name is in braces.
    braced: usize,
}

struct Ring;

impl Alarm for Ring {
    fn ring(ctx: &Ctx) {
        super::TABLE.with_borrow_mut(|table| table.armed = None);
        super::look_at_due_locks(ctx);
    }
}

/// Whether so few are left of a crowd that its room is worth giving back.
pub(super) fn is_too_roomy(capacity: usize, len: usize) -> bool {
    capacity > 1024 && capacity / 8 > len
}

/// Gives memory back after a crowd has left.
pub(super) fn give_back<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if is_too_roomy(map.capacity(), map.len()) {
        map.shrink_to(map.len() * 2);
    }
}

/// Whether a lock that is due at another instant than it is scheduled for may stay there. To be
/// looked at too early does no harm, and a lock that is handed on thousands of times a second need
/// not move its lease's end in the schedule each time.
fn stays(scheduled: Option<u64>, due: Option<u64>, now: u64) -> bool {
    match (scheduled, due) {
        (Some(scheduled), Some(due)) => scheduled == due || (now < scheduled && scheduled < due),
        (Some(scheduled), None) => now < scheduled,
        (None, due) => due.is_none(),
    }
}

/// The wall clock less the steady clock. It changes only when the wall clock is set or slewed.
fn offset(now: Now) -> i64 {
    now.millis().cast_signed() - now.tick().cast_signed()
}

impl Table {
    /// Whether nobody waits and no lock is bound to a connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.schedule.by_wall.is_empty() && self.schedule.by_tick.is_empty()
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

    /// Whether the lock of this name in braces has waiters or a session.
    #[must_use]
    pub fn contains_braced(&self, db: impl FnOnce() -> i32, name: &[u8]) -> bool {
        self.braced > 0 && self.contains(db(), &[b"{", name, b"}"].concat())
    }

    fn record(&mut self, db: i32, name: &[u8]) -> Option<&mut Record> {
        self.databases.get_mut(&db)?.get_mut(name)
    }

    /// The identity of a lock.
    #[must_use]
    pub fn id(&self, db: i32, name: &[u8]) -> LockId {
        let record = self.databases.get(&db).and_then(|locks| locks.get(name));
        record.map_or_else(|| LockId::new(db, name), |record| record.id.clone())
    }

    /// What is known of a lock, to be changed in a step and put back. Nothing if it has no waiters.
    pub fn take(&mut self, db: i32, name: &[u8]) -> Known {
        let record = self.record(db, name);
        record.map_or_else(Known::default, |record| std::mem::take(&mut record.known))
    }

    /// Puts it back after the step. A lock without waiters and session is forgotten. One that is
    /// never due by itself is due at `otherwise`, so that every lock is in one of the schedules.
    pub fn put(
        &mut self,
        db: i32,
        name: &[u8],
        known: Known,
        mut due: Due,
        now: Now,
        otherwise: Tick,
    ) {
        if known.is_empty() {
            self.forget(db, name);
            return;
        }
        if due == Due::default() {
            due.tick = Some(otherwise);
        }
        let locks = self.databases.entry(db).or_default();
        if let Some(record) = locks.get_mut(name) {
            record.known = known;
            let scheduled = record.scheduled;
            let stays = stays(scheduled.wall, due.wall, now.millis())
                && stays(scheduled.tick, due.tick, now.tick());
            if !stays {
                self.schedule.set(record, due);
            }
            return;
        }
        let id = LockId::new(db, name);
        let name = Rc::clone(&id.name);
        let mut record = Record::new(id, known);
        self.schedule.set(&mut record, due);
        self.braced += usize::from(names::unbraced(&name).is_some());
        locks.insert(name, record);
    }

    fn forget(&mut self, db: i32, name: &[u8]) {
        if let Some(locks) = self.databases.get_mut(&db)
            && let Some(record) = locks.remove(name)
        {
            self.schedule.remove(&record.id, record.scheduled);
            self.braced -= usize::from(names::unbraced(name).is_some());
            give_back(locks);
        }
    }

    /// Looks at a lock again later than it is due.
    pub fn postpone(&mut self, id: &LockId, tick: Tick) {
        let due = Due {
            wall: None,
            tick: Some(tick),
        };
        let locks = self.databases.get_mut(&id.db);
        if let Some(record) = locks.and_then(|locks| locks.get_mut(&id.name)) {
            self.schedule.set(record, due);
        }
    }

    /// Whether any lock is due.
    #[must_use]
    pub fn is_due(&self, now: Now) -> bool {
        self.schedule.ended(now).next().is_some() || self.schedule.over(now).next().is_some()
    }

    /// Whether the timer is set, and nobody has set the wall clock since.
    #[must_use]
    pub fn is_armed(&self, now: Now) -> bool {
        let armed = self.armed.as_ref();
        // A millisecond is what the two clocks' rounding makes.
        armed.is_some_and(|armed| armed.offset.abs_diff(offset(now)) <= 1)
    }

    /// Some of the locks that are due, those whose lease has ended first. The rest come next time:
    /// many at once must not keep the server from its clients.
    #[must_use]
    pub fn due(&self, now: Now) -> Vec<LockId> {
        const AT_ONCE: usize = 100;
        let ended = self.schedule.ended(now).take(AT_ONCE);
        let others = self.schedule.over(now).take(AT_ONCE);
        ended.chain(others).cloned().collect()
    }

    /// Sets the timer for the first lock that is due, and stops it if there is none. One that
    /// rings too early does no harm, so it is set anew only to ring earlier; or if the wall clock
    /// was set back meanwhile, because the server's timers wait for the wall clock.
    ///
    /// `timeout` is when the first blocked client's time is up.
    pub fn set_timer(&mut self, ctx: &Ctx, now: Now, timeout: Option<Tick>) {
        let wall = self.schedule.by_wall.first().map(|(at, _)| {
            let left = at.saturating_add(1).saturating_sub(now.millis());
            now.tick_after(left)
        });
        let tick = self.schedule.by_tick.first().map(|(at, _)| *at);
        let Some(at) = [wall, tick, timeout].into_iter().flatten().min() else {
            self.stop_timer(ctx);
            return;
        };
        let offset = offset(now);
        if let Some(armed) = &self.armed {
            if armed.at <= at && armed.offset <= offset {
                return;
            }
            self.stop_timer(ctx);
        }
        let delay = at.saturating_sub(now.tick()).max(1);
        let timer = timer::start::<Ring>(ctx, delay);
        self.armed = Some(Armed { at, offset, timer });
    }

    /// When the timer rings, if it is set.
    #[must_use]
    pub fn alarm(&self) -> Option<Tick> {
        self.armed.as_ref().map(|armed| armed.at)
    }

    fn stop_timer(&mut self, ctx: &Ctx) {
        if let Some(armed) = self.armed.take() {
            timer::stop(ctx, &armed.timer);
        }
    }

    /// Marks a blocked waiter whose connection has closed.
    pub fn mark_gone(&mut self, id: &LockId, owner: &[u8], ticket: Ticket) {
        self.mark(id, owner, Presence::Blocked(ticket), Presence::Gone);
    }

    /// Marks a blocked waiter that the server let go and that may come back.
    pub fn mark_let_go(&mut self, id: &LockId, owner: &[u8], ticket: Ticket) {
        self.mark(id, owner, Presence::Blocked(ticket), Presence::Found);
    }

    /// Marks a waiter of Redisson's that is about to leave the queue.
    pub fn mark_left(&mut self, id: &LockId, owner: &[u8]) {
        self.mark(id, owner, Presence::Asked, Presence::Found);
    }

    fn mark(&mut self, id: &LockId, owner: &[u8], from: Presence, to: Presence) {
        let Some(record) = self.record(id.db, &id.name) else {
            return;
        };
        let line = &mut record.known.line;
        if let Some(mut waiter) = line.get(owner)
            && waiter.presence == from
        {
            waiter.presence = to;
            line.set(owner, waiter);
        }
    }

    /// The waiters of a lock that are marked as gone.
    #[must_use]
    pub fn gone(&self, id: &LockId) -> Vec<Owner> {
        let waiters = self
            .known(id)
            .into_iter()
            .flat_map(|known| known.line.iter());
        let gone = waiters.filter(|(_, waiter)| waiter.presence == Presence::Gone);
        gone.map(|(owner, _)| Owner::clone(owner)).collect()
    }

    /// What is known of a lock that has left this server; it is forgotten.
    #[must_use]
    pub fn remove(&mut self, id: &LockId) -> Known {
        let known = self.take(id.db, &id.name);
        self.forget(id.db, &id.name);
        known
    }

    fn known(&self, id: &LockId) -> Option<&Known> {
        let record = self.databases.get(&id.db)?.get(&id.name)?;
        Some(&record.known)
    }

    /// Whether an owner is blocked on a lock.
    #[must_use]
    pub fn is_blocked(&self, id: &LockId, owner: &[u8]) -> bool {
        let waiter = self.known(id).and_then(|known| known.line.get(owner));
        waiter.is_some_and(|waiter| matches!(waiter.presence, Presence::Blocked(_)))
    }

    /// Whether a lock is bound to a connection for this owner.
    #[must_use]
    pub fn is_session(&self, id: &LockId, owner: &[u8]) -> bool {
        let session = self.known(id).and_then(|known| known.session.as_ref());
        session.is_some_and(|session| *session.owner == *owner)
    }

    /// The locks of a database with the number of their waiters.
    pub fn waiters(&self, db: i32) -> impl Iterator<Item = (Rc<[u8]>, usize)> {
        let locks = self.databases.get(&db).into_iter().flatten();
        locks.map(|(name, record)| (Rc::clone(name), record.known.line.len()))
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

    /// Two databases have changed places. Waiters stay where their connections are; a session
    /// goes with the key that it holds. Returns the locks that may have changed.
    pub fn swap(&mut self, one: i32, other: i32) -> Vec<LockId> {
        let mut touched = self.all(Some(one));
        touched.extend(self.all(Some(other)));
        let names: BTreeSet<Rc<[u8]>> = touched.into_iter().map(|id| id.name).collect();
        let mut both = Vec::new();
        for name in names {
            let first = self.take_session(one, &name);
            let second = self.take_session(other, &name);
            self.put_session(one, &name, second);
            self.put_session(other, &name, first);
            for db in [one, other] {
                let name = Rc::clone(&name);
                both.push(LockId { db, name });
            }
        }
        both
    }

    fn take_session(&mut self, db: i32, name: &[u8]) -> Option<Session> {
        self.record(db, name)?.known.session.take()
    }

    fn put_session(&mut self, db: i32, name: &Rc<[u8]>, session: Option<Session>) {
        let Some(session) = session else { return };
        if let Some(record) = self.record(db, name) {
            record.known.session = Some(session);
            return;
        }
        let known = Known {
            session: Some(session),
            ..Known::default()
        };
        // It is looked at in this very turn, which schedules it properly.
        let due = Due {
            wall: None,
            tick: Some(0),
        };
        self.put(db, name, known, due, super::now(), 0);
    }

    /// Forgets everything; the server is a replica now.
    pub fn clear(&mut self, ctx: &Ctx) {
        self.stop_timer(ctx);
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::stays;

    #[test]
    fn a_lock_is_looked_at_too_early_rather_than_too_late() {
        // Scheduled, due, now.
        for (scheduled, due, now, expected) in [
            (None, None, 5, true),
            (None, Some(9), 5, false),
            (Some(9), Some(9), 5, true),
            (Some(9), Some(20), 5, true),
            (Some(9), Some(8), 5, false),
            (Some(9), None, 5, true),
            // What is over has been looked at, and would be again at once.
            (Some(5), Some(20), 5, false),
            (Some(5), None, 5, false),
        ] {
            assert_eq!(
                stays(scheduled, due, now),
                expected,
                "{scheduled:?} {due:?}"
            );
        }
    }
}
