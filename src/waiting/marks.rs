//! What the table knows of single waiters and sessions: marks on waiters that go without a step, questions about
//! one owner, and sessions that change places with their databases.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::keyspace::Tracked;
use crate::lock::{Due, Now, Owner, Presence, Session, SharedHolders, Ticket, Waiter};

use super::id::LockId;
use super::table::Table;

/// What is tracked of a lock's holders.
type Holders = (Option<Session>, Option<Box<SharedHolders>>);

impl Table {
    /// Marks a blocked waiter whose connection has closed.
    pub fn mark_gone(&mut self, id: &LockId, owner: &[u8], ticket: Ticket) {
        self.mark(id, owner, Presence::Blocked(ticket), Presence::Gone);
    }

    /// Marks a blocked waiter that was sent away and may come back.
    pub fn mark_sent_away(&mut self, id: &LockId, owner: &[u8], ticket: Ticket) {
        self.mark(id, owner, Presence::Blocked(ticket), Presence::Found);
    }

    fn mark(&mut self, id: &LockId, owner: &[u8], from: Presence, to: Presence) {
        if let Some(record) = self.record(id.db, &id.name) {
            record.tracked.line.change(owner, |waiter| {
                if waiter.presence == from {
                    waiter.presence = to;
                }
            });
        }
    }

    /// The waiters of a lock that are marked as gone.
    #[must_use]
    pub fn gone(&self, id: &LockId) -> Vec<Owner> {
        let waiters = self
            .tracked(id)
            .into_iter()
            .flat_map(|tracked| tracked.line.iter());
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
        let mut touched = self.all(Some(one));
        touched.extend(self.all(Some(other)));
        let names: BTreeSet<Rc<[u8]>> = touched.into_iter().map(|id| id.name).collect();
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
            return (None, None);
        };
        let tracked = &mut record.tracked;
        (tracked.session.take(), tracked.shared.take())
    }

    fn put_holders(&mut self, db: i32, name: &Rc<[u8]>, holders: Holders, now: Now) {
        let (session, shared) = holders;
        if let Some(record) = self.record(db, name) {
            record.tracked.session = session;
            record.tracked.shared = shared;
            return;
        }
        let mut tracked = Tracked {
            session,
            shared,
            ..Tracked::default()
        };
        if tracked.is_empty() {
            return;
        }
        // It is looked at in this very iteration, which schedules it properly.
        let due = Due {
            wall: None,
            tick: Some(0),
        };
        self.put(db, name, &mut tracked, due, now, 0);
    }
}
