//! What holders do with the lock, and what is done to them: release, renewal, break.

use super::clock::Millis;
use super::event::Event;
use super::parts::{Connection, Holds, Refusal};
use super::state::State;
use super::step::Step;

/// One request to give holds up.
#[derive(Clone, Copy, Debug)]
pub struct GiveUp<'a> {
    pub owner: &'a [u8],
    /// Only if it holds the lock by this token.
    pub token: Option<i64>,
    pub all: bool,
    pub connection: Option<Connection>,
}

impl<S: State> Step<'_, S> {
    /// Frees the lock from all its holders, and ends their sessions.
    pub(super) fn free(&mut self) {
        if self.state.shared().is_some() {
            self.free_shared(|since| Event::Released { since });
        } else {
            self.state.free();
            self.end_session();
            self.state.emit(Event::Released { since: None });
        }
    }

    /// An owner no longer holds the lock. If it was the only holder, the lock is free.
    pub(super) fn free_of(&mut self, owner: &[u8]) {
        if self.state.shared().is_some() {
            let since = self.drop_holder(owner);
            self.state.emit(Event::Released { since });
        } else {
            self.free();
        }
    }

    /// Gives up one hold, or all of them. Returns the holds that remain; 0 means that the owner no longer holds the
    /// lock, and every waiter that can have the lock has been served.
    ///
    /// # Errors
    /// [`Refusal::NotHeld`], [`Refusal::OtherToken`];
    /// [`Refusal::NotALock`].
    pub fn release(&mut self, request: &GiveUp<'_>) -> Result<i64, Refusal> {
        self.drop_ended(None);
        let count = match self.state.holds(request.owner) {
            Holds::None => return Err(self.not_held()),
            Holds::Unreadable => return Err(Refusal::NotALock),
            Holds::Count(count) => count,
        };
        self.require_lock()?;
        if request.token.is_some() && self.token_of(request.owner) != request.token {
            return Err(Refusal::OtherToken);
        }
        let given_up = if request.all { count } else { 1 };
        Ok(self.give_up(request.owner, request.connection, count, given_up))
    }

    /// A holder with `count` holds gives some of them up, which are this connection's if it has any. Returns the holds
    /// that remain; 0 means that every waiter that can have the lock has been served.
    pub(super) fn give_up(
        &mut self,
        owner: &[u8],
        connection: Option<Connection>,
        count: i64,
        given_up: i64,
    ) -> i64 {
        let left = count.saturating_sub(given_up).max(0);
        if left > 0 {
            self.state.set_holds(owner, left);
            self.release_bound(owner, connection, given_up, left);
        } else {
            self.free_of(owner);
            self.settle(None);
        }
        left
    }

    /// Takes back the hold of a lost hand-off: the client was gone before it had the reply. `session` is the connection
    /// that the hold was bound to. If the owner has since asked again on another connection, the holds that it got
    /// there stay. Nothing happens if the lock has moved on since.
    pub fn take_back(&mut self, owner: &[u8], token: i64, session: Option<Connection>) {
        // A refusal is right: the owner no longer holds the lock, or holds it by a later token.
        let _ = self.release(&GiveUp {
            owner,
            token: Some(token),
            all: false,
            connection: session,
        });
    }

    /// Sets the holder's lease anew. Returns the lease now set.
    ///
    /// # Errors
    /// [`Refusal::NotHeld`] if `owner` does not hold the lock; [`Refusal::NotALock`].
    pub fn renew(&mut self, owner: &[u8], lease: Millis) -> Result<Millis, Refusal> {
        self.drop_ended(None);
        match self.state.holds(owner) {
            Holds::None => return Err(self.not_held()),
            Holds::Unreadable => return Err(Refusal::NotALock),
            Holds::Count(_) => self.require_lock()?,
        }
        Ok(self.extend(owner, lease))
    }

    /// Takes the lock from its holders, or only from `owner`; a lock without a lease only by force. Returns whether
    /// anyone held it.
    ///
    /// # Errors
    /// [`Refusal::NotALock`], [`Refusal::NoLease`].
    pub fn break_lock(&mut self, owner: Option<&[u8]>, force: bool) -> Result<bool, Refusal> {
        self.drop_ended(None);
        let held = match owner {
            Some(owner) => self.state.holds(owner) != Holds::None,
            None => self.state.is_held(),
        };
        if held {
            self.require_lock()?;
            if self.state.lease_end().is_none() && !force {
                return Err(Refusal::NoLease);
            }
            match owner {
                Some(owner) => self.free_of(owner),
                None => self.free(),
            }
        }
        self.settle(None);
        Ok(held)
    }
}
