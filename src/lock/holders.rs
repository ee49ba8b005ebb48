//! The shared holders of a lock: readers, or the users of a semaphore.
//!
//! Each has a lease, a token and a session of its own. What a step asks for is found without walking: the lease that
//! ends first, the session to be renewed first, and the least limit. Each change costs the logarithm of the number of
//! holders.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::Wall;
use super::parts::{Limit, Owner, Session, Terms};

/// A holder as it was admitted; what is changed later is kept here of shared holders only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub terms: Terms,
    pub lease_end: Wall,
    /// Its fencing token; 0 for a holder that another client has written into the keys.
    pub token: i64,
    /// When it became a holder, by the steady clock in microseconds; `None` if not in this run of this server.
    pub since: Option<u64>,
    /// The connections that its hold is bound to.
    pub session: Option<Session>,
}

impl Holder {
    /// A holder without a session.
    pub fn new(terms: Terms, lease_end: Wall, token: i64, since: Option<u64>) -> Self {
        Self {
            terms,
            lease_end,
            token,
            since,
            session: None,
        }
    }

    /// Its fencing token, if it was given one.
    pub fn given_token(&self) -> Option<i64> {
        Some(self.token).filter(|token| *token > 0)
    }

    /// When its session must be renewed, if it has one.
    fn renewal(&self) -> Option<Wall> {
        let session = self.session.as_ref()?;
        Some(session.renewal(Some(self.lease_end)))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedHolders {
    holders: BTreeMap<Owner, Holder>,
    /// By the end of the lease.
    ends: BTreeSet<(Wall, Owner)>,
    /// How many holders have each limit.
    limits: BTreeMap<Limit, usize>,
    /// Those with a session, by the time of the next renewal.
    renewals: BTreeSet<(Wall, Owner)>,
}

impl SharedHolders {
    pub fn count(&self) -> usize {
        self.holders.len()
    }

    pub fn get(&self, owner: &[u8]) -> Option<&Holder> {
        self.holders.get(owner)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Owner, &Holder)> {
        self.holders.iter()
    }

    /// How many holders all of them tolerate.
    pub fn least_limit(&self) -> Limit {
        let least = self.limits.first_key_value();
        least.map_or(Limit::NONE, |(limit, _)| *limit)
    }

    /// Whether one more holder with this limit may join them.
    pub fn have_room(&self, limit: Limit) -> bool {
        self.least_limit()
            .min(limit)
            .tolerates(self.count().saturating_add(1))
    }

    /// The holder whose lease ends first, and when.
    pub fn first(&self) -> Option<(Wall, Owner)> {
        self.ends.first().cloned()
    }

    /// When the last lease ends.
    pub fn last_end(&self) -> Option<Wall> {
        self.ends.last().map(|(end, _)| *end)
    }

    /// The holder whose lease ends last.
    pub fn last(&self) -> Option<Owner> {
        self.ends.last().map(|(_, owner)| Owner::clone(owner))
    }

    /// The holder whose session must be renewed first, and when.
    pub fn first_renewal(&self) -> Option<(Wall, Owner)> {
        self.renewals.first().cloned()
    }

    /// Adds a holder. One of the same name is replaced.
    pub fn insert(&mut self, owner: Owner, holder: Holder) {
        self.remove(&owner);
        self.ends.insert((holder.lease_end, Owner::clone(&owner)));
        *self.limits.entry(holder.terms.limit).or_default() += 1;
        let renewal = holder.renewal();
        self.renewals
            .extend(renewal.map(|at| (at, Owner::clone(&owner))));
        self.holders.insert(owner, holder);
    }

    pub fn remove(&mut self, owner: &[u8]) -> Option<Holder> {
        let (owner, holder) = self.holders.remove_entry(owner)?;
        if let Some(at) = holder.renewal() {
            self.renewals.remove(&(at, Owner::clone(&owner)));
        }
        if let Some(count) = self.limits.get_mut(&holder.terms.limit) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.limits.remove(&holder.terms.limit);
            }
        }
        self.ends.remove(&(holder.lease_end, owner));
        Some(holder)
    }

    pub fn change<T>(&mut self, owner: &[u8], change: impl FnOnce(&mut Holder) -> T) -> Option<T> {
        let mut holder = self.remove(owner)?;
        let changed = change(&mut holder);
        self.insert(Owner::from(owner), holder);
        Some(changed)
    }
}
