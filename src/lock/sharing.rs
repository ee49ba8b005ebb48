//! Locks with several holders: who may join them, how their leases end, how one of them leaves.
//!
//! One rule decides: each holder tolerates at most [`Limit`] holders in all, itself included. An
//! exclusive holder tolerates one, so a lock that is held exclusively needs none of this, and pays for none of it.

use super::clock::Millis;
use super::event::Event;
use super::state::{Limit, State};
use super::step::Step;

/// How many holders whose leases have ended are dropped in one step, so that other clients do not wait for it.
const DROPPED_AT_ONCE: usize = 500;

impl<S: State> Step<'_, S> {
    /// Whether an owner with this limit could be a holder now.
    pub(super) fn fits(&mut self, limit: Limit) -> bool {
        !self.state.is_held() || !limit.is_exclusive() && self.have_room(limit)
    }

    /// Whether those that hold the lock together tolerate one more, and it them.
    pub(super) fn have_room(&mut self, limit: Limit) -> bool {
        let shared = self.state.shared();
        shared.is_some_and(|shared| shared.have_room(limit))
    }

    /// The limit of an owner that holds the lock together with others.
    pub(super) fn limit_of(&mut self, owner: &[u8]) -> Option<Limit> {
        let holder = self.state.shared()?.get(owner)?;
        Some(holder.limit)
    }

    /// A holder's fencing token.
    pub(super) fn token_of(&mut self, owner: &[u8]) -> Option<i64> {
        match self.state.shared() {
            Some(shared) => shared.get(owner).map(|holder| holder.token),
            None => self.state.token(),
        }
    }

    /// When the next lease ends: the only one, or the first of several.
    pub(super) fn first_lease_end(&mut self) -> Option<Millis> {
        match self.state.shared() {
            Some(shared) => shared.first_end(),
            None => self.state.lease_end(),
        }
    }

    /// Those that hold the lock together and whose leases have ended are no holders any more. The first thing in
    /// each step; `asking` as for [`Self::settle`].
    pub(super) fn drop_ended(&mut self, asking: Option<&[u8]>) {
        if self.state.shared().is_none() {
            return;
        }
        let dropped = if self.state.is_held() {
            self.drop_some_ended()
        } else {
            // The key has gone, by its expiry or by somebody's hand.
            self.free_shared(|since| Event::LeaseEnded { since });
            true
        };
        if dropped {
            self.settle(asking);
        }
    }

    /// Drops holders whose leases have ended, a bounded number of them: the next step, which is due at once,
    /// goes on.
    fn drop_some_ended(&mut self) -> bool {
        let now = self.now.millis();
        let mut dropped = 0;
        while dropped < DROPPED_AT_ONCE
            && let Some(shared) = self.state.shared()
            && let Some(owner) = shared.first_over(now)
        {
            let since = self.drop_holder(&owner);
            self.state.emit(Event::LeaseEnded { since });
            dropped += 1;
        }
        dropped > 0
    }

    /// The lock is free: none of those that held it together does any more. `happened` says what that was for
    /// each of them.
    pub(super) fn free_shared(&mut self, happened: impl Fn(Option<u64>) -> Event) {
        let shared = self.state.shared();
        let holders = shared.map(|shared| shared.owners()).unwrap_or_default();
        for (owner, since) in holders {
            self.end_session_of(&owner);
            self.state.emit(happened(since));
        }
        self.state.free();
    }

    /// One of those that hold the lock together leaves them; with the last one the lock is free. Returns when it
    /// became a holder.
    pub(super) fn drop_holder(&mut self, owner: &[u8]) -> Option<u64> {
        let shared = self.state.shared()?;
        let since = shared.get(owner)?.since;
        let is_last = shared.len() == 1;
        self.end_session_of(owner);
        if is_last {
            self.state.free();
        } else {
            self.state.dismiss(owner);
            self.refresh_expiry();
        }
        since
    }

    /// Sees to it that the key lasts as long as the last lease, while several hold the lock.
    pub(super) fn refresh_expiry(&mut self) {
        let last = self.state.shared().and_then(|shared| shared.last_end());
        if let Some(last) = last
            && self.state.lease_end() != Some(last)
        {
            self.state.set_lease_end(last);
        }
    }
}
