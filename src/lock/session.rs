//! Locks that live as long as a connection.
//!
//! A session does not replace the lease: the key still expires by itself if the server dies. The server
//! renews the lease while a connection of the session is open, and gives up the connection's holds when it
//! closes. One owner can hold a lock through several connections, and partly without any (ACQUIRE without
//! SESSION). So a session counts how many holds each connection brought: a connection that closes takes its
//! own holds with it and no others.

use super::clock::{Millis, Wall};
use super::event::Event;
use super::parts::{Connection, Holds, Owner, Session};
use super::state::State;
use super::step::Step;

/// How many leases are renewed in one step. The next step, which is due at once, renews more.
const RENEW_BATCH: usize = 500;

impl Session {
    /// When its lease, which ends at `end`, must be renewed: once a third is over, so that two renewals may be missed.
    /// By the wall clock, as the lease itself: that may be set ahead. At once if another client has taken the lease
    /// away.
    pub fn renewal(&self, end: Option<Wall>) -> Wall {
        let rest = self.lease.saturating_sub((self.lease / 3).max(1));
        end.map_or_else(Wall::default, |end| end.before(rest))
    }
}

impl<S: State> Step<'_, S> {
    /// Takes a holder's session, to be changed and put back. The session of an earlier holder ends.
    fn take_session(&mut self, owner: &[u8]) -> Option<Session> {
        if let Some(shared) = self.state.shared() {
            // Most have none, and each change costs.
            shared.get(owner)?.session.as_ref()?;
            return shared.change(owner, |holder| holder.session.take())?;
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
            Some(shared) => {
                let owner = Owner::clone(&session.owner);
                shared.change(&owner, |holder| holder.session = Some(session));
            }
            None => *self.state.session() = Some(session),
        }
    }

    pub(super) fn session_of(&mut self, owner: &[u8]) -> Option<&Session> {
        if self.state.shared().is_some() {
            return self.state.shared()?.get(owner)?.session.as_ref();
        }
        let session = self.state.session().as_ref();
        session.filter(|session| *session.owner == *owner)
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
            holders: Vec::with_capacity(1),
        });
        if moved {
            self.unbind_all(&session);
            session.holders.clear();
        }
        let mut holders = session.holders.iter_mut();
        if let Some((_, holds)) = holders.find(|(other, _)| *other == connection) {
            *holds = holds.saturating_add(1);
        } else {
            let holds = if moved { total } else { 1 };
            session.holders.push((connection, holds));
            let owner = Owner::clone(&session.owner);
            self.state.emit(Event::Bound { connection, owner });
        }
        session.lease = lease;
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
            self.unbind(&session.owner, *connection);
        }
    }

    /// A holder does not rely on a connection any more.
    fn unbind(&mut self, owner: &Owner, connection: Connection) {
        let owner = Owner::clone(owner);
        self.state.emit(Event::Unbound { connection, owner });
    }

    /// The owner has given up holds, and `left` remain. The connection that gave them up loses as many of its own
    /// holds, and no connection keeps more holds than there are.
    pub(super) fn release_bound(
        &mut self,
        owner: &[u8],
        connection: Option<Connection>,
        given_up: i64,
        left: i64,
    ) {
        let Some(mut session) = self.take_session(owner) else {
            return;
        };
        let owner = &session.owner;
        let mut room = left;
        session.holders.retain_mut(|(of, holds)| {
            if Some(*of) == connection {
                *holds = holds.saturating_sub(given_up);
            }
            *holds = (*holds).min(room);
            room = room.saturating_sub(*holds);
            if *holds <= 0 {
                self.unbind(owner, *of);
            }
            *holds > 0
        });
        if !session.holders.is_empty() {
            self.put_session(session);
        }
    }

    /// A connection has closed that a hold may be bound to: the holds that an owner has by it are given up. If it has
    /// none left, it no longer holds the lock.
    pub fn connection_closed(&mut self, owner: &[u8], connection: Connection) {
        self.drop_ended(None);
        let bound = self.session_of(owner).into_iter();
        let mut bound = bound.flat_map(|session| &session.holders);
        let Some((_, given_up)) = bound.find(|of| of.0 == connection).copied() else {
            return;
        };
        if let Holds::Count(count) = self.state.holds(owner) {
            self.give_up(owner, Some(connection), count, given_up);
        } else {
            // The lock is lost, or another client has overwritten the hold count.
            self.end_session_of(owner);
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

    /// Renews the leases that are due. None is made shorter: one that is due has less left than it is given. Where the
    /// server may be cut off, leases run out: another server may grant the lock when they would have ended.
    pub(super) fn renew_due_sessions(&mut self) {
        // The server is asked only if something is due: many steps look here.
        if self.due_for_renewal().is_some() && self.state.may_renew() {
            for _ in 0..RENEW_BATCH {
                let Some(owner) = self.due_for_renewal() else {
                    break;
                };
                self.extend(&owner, 0);
            }
        }
    }

    /// A holder whose session is to be renewed now.
    fn due_for_renewal(&mut self) -> Option<Owner> {
        let (at, owner) = self.next_renewal()?;
        (at <= self.now.wall()).then_some(owner)
    }

    /// The holder whose session is to be renewed next, and when.
    pub(super) fn next_renewal(&mut self) -> Option<(Wall, Owner)> {
        if let Some(shared) = self.state.shared() {
            return shared.first_renewal();
        }
        self.state.session().as_ref()?;
        let end = self.state.lease_end();
        let session = self.state.session().as_ref()?;
        Some((session.renewal(end), Owner::clone(&session.owner)))
    }
}
