//! Locks that live as long as a connection.
//!
//! A session does not replace the lease: the key still expires by itself if the server dies. The server
//! renews the lease while a connection of the session is open, and gives up the connection's holds when it
//! closes. One owner can hold a lock through several connections, and partly without any (ACQUIRE without
//! SESSION). So a session counts how many holds each connection brought: a connection that closes takes its
//! own holds with it and no others.

use super::clock::{Millis, Now, Tick};
use super::event::Event;
use super::parts::{Connection, Holds, Owner, Session};
use super::state::State;
use super::step::Step;

impl Session {
    /// Schedules the next renewal: the lease was renewed now. A third of the lease, so that two renewals may be missed.
    fn renewed(&mut self, now: Now) {
        self.renew_at = now.tick_after((self.lease / 3).max(1));
    }

    /// Tries again soon: the lease could not be renewed now.
    fn put_off(&mut self, now: Now) {
        self.renew_at = now.tick_after((self.lease / 10).max(1));
    }
}

impl<S: State> Step<'_, S> {
    /// Takes a holder's session, to be changed and put back. The session of an earlier holder ends.
    fn take_session(&mut self, owner: &[u8]) -> Option<Session> {
        if let Some(shared) = self.state.shared() {
            return shared.take_session(owner);
        }
        let session = self.state.session().take()?;
        if *session.owner == *owner {
            return Some(session);
        }
        self.unbind_all(&session);
        None
    }

    fn put_session(&mut self, session: Session) {
        match self.state.shared() {
            Some(shared) => shared.put_session(session),
            None => *self.state.session() = Some(session),
        }
    }

    /// Binds a hold that the owner just got to a connection. If `moved`, binds all of the owner's holds: it
    /// asked with ONCE, which adds no hold, perhaps on a new connection.
    pub(super) fn bind(
        &mut self,
        owner: &[u8],
        connection: Connection,
        lease: Millis,
        moved: bool,
    ) {
        let total = match self.state.holds(owner) {
            Holds::Count(count) => count,
            _ => 1,
        };
        let mut session = self.take_session(owner).unwrap_or_else(|| Session {
            owner: Owner::from(owner),
            lease,
            renew_at: Tick::default(),
            holders: Vec::with_capacity(1),
        });
        if moved {
            for (other, _) in std::mem::take(&mut session.holders) {
                self.unbind(other);
            }
        }
        let mut holders = session.holders.iter_mut();
        if let Some((_, holds)) = holders.find(|(other, _)| *other == connection) {
            *holds = holds.saturating_add(1);
        } else {
            let holds = if moved { total } else { 1 };
            session.holders.push((connection, holds));
            if !self.is_relied_on(connection) {
                self.state.emit(Event::Bound { connection });
            }
        }
        session.lease = lease;
        session.renewed(self.now);
        self.put_session(session);
    }

    /// Ends the session of an exclusive holder: it no longer holds the lock, or only until its lease ends.
    pub(super) fn end_session(&mut self) {
        if let Some(session) = self.state.session().take() {
            self.unbind_all(&session);
        }
    }

    /// As [`Self::end_session`], for a shared holder.
    pub(super) fn end_session_of(&mut self, owner: &[u8]) {
        if let Some(session) = self.take_session(owner) {
            self.unbind_all(&session);
        }
    }

    fn unbind_all(&mut self, session: &Session) {
        for (connection, _) in &session.holders {
            self.unbind(*connection);
        }
    }

    /// A holder does not rely on a connection any more. Another shared holder may still rely on it.
    fn unbind(&mut self, connection: Connection) {
        if !self.is_relied_on(connection) {
            self.state.emit(Event::Unbound { connection });
        }
    }

    /// Whether a shared holder relies on a connection.
    fn is_relied_on(&mut self, connection: Connection) -> bool {
        let shared = self.state.shared();
        shared.is_some_and(|shared| shared.rely_on(connection))
    }

    /// The least lease that a holder may be given while a connection relies on its hold.
    pub(super) fn least_lease(&mut self, owner: &[u8]) -> Millis {
        let session = match self.state.shared() {
            Some(shared) => shared.get(owner).and_then(|holder| holder.session()),
            None => self.state.session().as_ref(),
        };
        session.map_or(0, |session| session.lease)
    }

    /// The owner has given up one hold, and `left` remain. The connection that gave it up loses one of its own
    /// holds, and no connection keeps more holds than there are.
    pub(super) fn release_bound(
        &mut self,
        owner: &[u8],
        connection: Option<Connection>,
        left: i64,
    ) {
        let Some(mut session) = self.take_session(owner) else {
            return;
        };
        let mut holders = session.holders.iter_mut();
        if let Some((_, holds)) = holders.find(|(other, _)| Some(*other) == connection) {
            *holds = holds.saturating_sub(1);
        }
        let mut room = left;
        for (_, holds) in &mut session.holders {
            *holds = (*holds).min(room);
            room = room.saturating_sub(*holds);
        }
        self.keep_session(session);
    }

    /// Puts a session back without the connections that have no hold left.
    fn keep_session(&mut self, mut session: Session) {
        session.holders.retain(|(connection, holds)| {
            if *holds <= 0 {
                self.unbind(*connection);
            }
            *holds > 0
        });
        if !session.holders.is_empty() {
            self.put_session(session);
        }
    }

    /// A connection that the lock is bound to has closed: its holds are given up, and each holder that has none left no
    /// longer holds the lock.
    pub fn connection_closed(&mut self, connection: Connection) {
        self.drop_ended(None);
        self.end_lost_session();
        for owner in self.bound_to(connection) {
            self.give_up(&owner, connection);
        }
    }

    /// The holders that rely on a connection.
    fn bound_to(&mut self, connection: Connection) -> Vec<Owner> {
        if let Some(shared) = self.state.shared() {
            return shared.bound_to(connection);
        }
        let session = self.state.session().as_ref();
        let relies = |session: &&Session| session.holders.iter().any(|of| of.0 == connection);
        let owner = session
            .filter(relies)
            .map(|session| Owner::clone(&session.owner));
        owner.into_iter().collect()
    }

    /// Gives up the holds that an owner has by a connection.
    fn give_up(&mut self, owner: &[u8], connection: Connection) {
        let Some(mut session) = self.take_session(owner) else {
            return;
        };
        let mut given_up = 0;
        for (_, holds) in session.holders.iter_mut().filter(|of| of.0 == connection) {
            given_up = std::mem::take(holds);
        }
        let holds = self.state.holds(owner);
        self.keep_session(session);
        let Holds::Count(count) = holds else {
            // Another client has overwritten the hold count.
            self.end_session_of(owner);
            return;
        };
        let left = count.saturating_sub(given_up);
        if left > 0 {
            self.state.set_holds(owner, left);
        } else {
            self.free_of(owner);
            self.settle(None);
        }
    }

    /// Ends the session of an exclusive holder that has lost the lock: the lease ran out, or another client took
    /// or deleted the key.
    pub(super) fn end_lost_session(&mut self) {
        let session = self.state.session().as_ref();
        let owner = session.map(|session| Owner::clone(&session.owner));
        if owner.is_some_and(|owner| self.state.holds(&owner) == Holds::None) {
            self.end_session();
        }
    }

    /// Renews the leases that are due, and a lease that another client has shortened. No lease is made shorter. Where
    /// the server may be cut off, leases run out: another server may grant the lock when they would have ended.
    pub(super) fn renew_due_sessions(&mut self) {
        // The server is asked only if something is due: many steps look here.
        let may_renew = self.due_for_renewal(true).is_none() || self.state.may_renew();
        while let Some(owner) = self.due_for_renewal(may_renew)
            && let Some(mut session) = self.take_session(&owner)
        {
            let renewed = self.now.after(session.lease);
            if may_renew {
                session.renewed(self.now);
            } else {
                session.put_off(self.now);
            }
            self.put_session(session);
            let end = self.lease_end_of(&owner);
            if may_renew && end.is_none_or(|end| end < renewed) {
                self.set_lease_end(&owner, renewed);
            }
        }
    }

    /// A holder whose session is to be renewed, or to be put off.
    fn due_for_renewal(&mut self, may_renew: bool) -> Option<Owner> {
        let now = self.now;
        if self.next_renewal()? > now.tick() && !may_renew {
            return None;
        }
        if let Some(shared) = self.state.shared() {
            return shared.due_for_renewal(now);
        }
        let end = self.state.lease_end();
        let session = self.state.session().as_ref()?;
        let safe = now.after(session.lease - session.lease / 2);
        let is_due = session.renew_at <= now.tick() || end.is_none_or(|end| end < safe);
        is_due.then(|| Owner::clone(&session.owner))
    }
}
