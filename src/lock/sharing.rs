//! Locks with several holders: which callers may join, how leases end, how one holder leaves.
//!
//! One rule decides: each holder tolerates at most [`Limit`] holders in all, itself included. An exclusive
//! holder has a limit of 1. It is not among the shared holders, so an exclusive lock costs nothing more.

use super::clock::Wall;
use super::event::Event;
use super::holders::Holder;
use super::parts::{Limit, Owner};
use super::state::State;
use super::step::Step;

/// How many holders whose leases have ended are dropped in one step, so that the step does not delay other
/// clients.
const DROP_BATCH: usize = 500;

impl<S: State> Step<'_, S> {
    /// Whether an owner with this limit could be a holder now.
    pub(super) fn fits(&mut self, limit: Limit) -> bool {
        let shared = self.state.shared();
        let may_join = shared.is_some_and(|shared| shared.have_room(limit));
        may_join || !self.state.is_held()
    }

    /// A holder's fencing token; none if it came by a script, or was written into the keys by others.
    pub(super) fn token_of(&mut self, owner: &[u8]) -> Option<i64> {
        match self.state.shared() {
            Some(shared) => shared.get(owner).and_then(Holder::given_token),
            None => self.state.token(),
        }
    }

    /// When a holder's lease ends, if it has one.
    pub(super) fn lease_end_of(&mut self, owner: &[u8]) -> Option<Wall> {
        match self.state.shared() {
            Some(shared) => shared.get(owner).map(|holder| holder.lease_end),
            None => self.state.lease_end(),
        }
    }

    /// Sets when a holder's lease ends.
    pub(super) fn set_lease_end(&mut self, owner: &[u8], at: Wall) {
        if self.state.shared().is_some() {
            self.state.set_lease_of(owner, at);
            self.refresh_expiry();
        } else {
            self.state.set_lease_end(at);
        }
    }

    /// When the next lease ends: that of the exclusive holder, or the first of several.
    pub(super) fn first_lease_end(&mut self) -> Option<Wall> {
        match self.state.shared() {
            Some(shared) => shared.first().map(|(end, _)| end),
            None => self.state.lease_end(),
        }
    }

    /// Makes the lock's key last as long as the last lease of the shared holders.
    pub(super) fn refresh_expiry(&mut self) {
        let last = self.state.shared().and_then(|shared| shared.last_end());
        if let Some(last) = last
            && self.state.lease_end() != Some(last)
        {
            self.state.set_lease_end(last);
        }
    }

    /// Drops shared holders whose leases have ended. Each step begins with this; `asking` as for [`Self::settle`].
    pub(super) fn drop_ended(&mut self, asking: Option<&[u8]>) {
        if self.state.shared().is_none() {
            return;
        }
        let dropped = if self.state.is_held() {
            self.drop_some_ended()
        } else {
            // The key expired, or another client deleted it.
            self.free_shared(|since| Event::LeaseEnded { since });
            true
        };
        if dropped {
            self.settle(asking);
        }
    }

    /// Drops at most [`DROP_BATCH`] of them. The next step, which is due at once, drops more.
    fn drop_some_ended(&mut self) -> bool {
        let now = self.now.wall();
        let mut dropped = 0;
        while dropped < DROP_BATCH
            && let Some(shared) = self.state.shared()
            && let Some((end, owner)) = shared.first()
            && end < now
        {
            let since = self.drop_holder(&owner);
            self.state.emit(Event::LeaseEnded { since });
            dropped += 1;
        }
        dropped > 0
    }

    /// Frees the lock from its shared holders, and emits what `happened` to each of them.
    pub(super) fn free_shared(&mut self, happened: impl Fn(Option<u64>) -> Event) {
        let shared = self.state.shared().into_iter();
        let holders = shared.flat_map(|shared| shared.iter());
        let holders: Vec<_> = holders
            .map(|(owner, holder)| (Owner::clone(owner), holder.since))
            .collect();
        for (owner, since) in holders {
            self.end_session_of(&owner);
            self.state.emit(happened(since));
        }
        self.state.free();
    }

    /// Takes a shared holder out. After the last one the lock is free. Returns when it became a holder.
    pub(super) fn drop_holder(&mut self, owner: &[u8]) -> Option<u64> {
        let shared = self.state.shared()?;
        let since = shared.get(owner)?.since;
        let is_last = shared.count() == 1;
        self.end_session_of(owner);
        if is_last {
            self.state.free();
        } else {
            self.state.dismiss(owner);
            self.refresh_expiry();
        }
        since
    }
}
