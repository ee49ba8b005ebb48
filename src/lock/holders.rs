//! The shared holders of a lock: readers, or the users of a semaphore.
//!
//! Each has a lease, a token and a session of its own. What a step asks for is found without walking:
//! the lease that ends first, the session to be renewed first, the least limit, and the holders that rely on a
//! connection. Each change costs the logarithm of the number of holders.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::{Now, Tick, Wall};
use super::parts::{Connection, Limit, Owner, Session, Terms};

/// A holder as it was admitted; what is changed later is kept here of shared holders only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// How it holds the lock.
    pub terms: Terms,
    /// The end of its lease.
    pub lease_end: Wall,
    /// Its fencing token; 0 for a holder that another client has written into the keys.
    pub token: i64,
    /// When it became a holder, by the steady clock in microseconds; `None` if not in this run of this server.
    pub since: Option<u64>,
    session: Option<Session>,
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

    /// The connections that its hold is bound to.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }
}

/// The shared holders of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedHolders {
    holders: BTreeMap<Owner, Holder>,
    /// By the end of the lease.
    ends: BTreeSet<(Wall, Owner)>,
    /// How many holders have each limit.
    limits: BTreeMap<Limit, usize>,
    /// Those with a session, by the time of the next renewal, and by the end of the lease.
    renewals: BTreeSet<(Tick, Owner)>,
    bound_ends: BTreeSet<(Wall, Owner)>,
    /// Which holders rely on each connection.
    bound: BTreeSet<(Connection, Owner)>,
}

impl SharedHolders {
    /// Their number.
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// One of them.
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
            .tolerates(self.len().saturating_add(1))
    }

    /// When the first lease ends.
    pub fn first_end(&self) -> Option<Wall> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// When the last lease ends.
    pub fn last_end(&self) -> Option<Wall> {
        self.ends.last().map(|(end, _)| *end)
    }

    /// Their names, and when they became holders. Walks them.
    pub fn owners(&self) -> Vec<(Owner, Option<u64>)> {
        let holders = self.holders.iter();
        let owners = holders.map(|(owner, holder)| (Owner::clone(owner), holder.since));
        owners.collect()
    }

    /// The holder whose lease ends last.
    pub fn last(&self) -> Option<Owner> {
        self.ends.last().map(|(_, owner)| Owner::clone(owner))
    }

    /// A holder whose lease is over: it ended before this millisecond.
    pub fn first_expired(&self, now: Wall) -> Option<Owner> {
        let (end, owner) = self.ends.first()?;
        (*end < now).then(|| Owner::clone(owner))
    }

    /// When the first session must be renewed.
    pub fn first_renewal(&self) -> Option<Tick> {
        self.renewals.first().map(|(at, _)| *at)
    }

    /// A holder whose session must be renewed: the renewal is due, or the lease is the first of those to end and less
    /// than half of it is left, as after the wall clock was set ahead.
    pub fn due_for_renewal(&self, now: Now) -> Option<Owner> {
        let timed = self.renewals.first().filter(|(at, _)| *at <= now.tick());
        let owner = timed.map_or_else(|| self.first_short(now), |(_, owner)| Some(owner));
        owner.map(Owner::clone)
    }

    fn first_short(&self, now: Now) -> Option<&Owner> {
        let (end, owner) = self.bound_ends.first()?;
        let session = self.holders.get(owner)?.session.as_ref()?;
        let is_short = end.before(session.lease - session.lease / 2) < now.wall();
        is_short.then_some(owner)
    }

    /// The holders that rely on a connection.
    pub fn bound_to(&self, connection: Connection) -> Vec<Owner> {
        let from = (connection, Owner::from(&[][..]));
        let bound = self.bound.range(from..);
        let of_it = bound.take_while(|(of, _)| *of == connection);
        of_it.map(|(_, owner)| Owner::clone(owner)).collect()
    }

    /// Whether one of them relies on a connection.
    pub fn rely_on(&self, connection: Connection) -> bool {
        let from = (connection, Owner::from(&[][..]));
        let mut bound = self.bound.range(from..);
        bound.next().is_some_and(|(of, _)| *of == connection)
    }

    /// Adds a holder. One of the same name is replaced.
    pub fn insert(&mut self, owner: Owner, holder: Holder) {
        self.remove(&owner);
        self.ends.insert((holder.lease_end, Owner::clone(&owner)));
        *self.limits.entry(holder.terms.limit).or_default() += 1;
        if let Some(session) = &holder.session {
            self.index_session(session, holder.lease_end);
        }
        self.holders.insert(owner, holder);
    }

    /// Takes a holder out.
    pub fn remove(&mut self, owner: &[u8]) -> Option<Holder> {
        let (owner, holder) = self.holders.remove_entry(owner)?;
        if let Some(session) = &holder.session {
            self.forget_session(session, holder.lease_end);
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

    /// Takes all out.
    pub fn take_all(self) -> BTreeMap<Owner, Holder> {
        self.holders
    }

    /// Sets the end of a holder's lease. If that makes the lease shorter, its session is to be renewed at once.
    pub fn set_lease_end(&mut self, owner: &[u8], at: Wall) {
        let Some((owner, holder)) = self.holders.get_key_value(owner) else {
            return;
        };
        let (owner, before) = (Owner::clone(owner), holder.lease_end);
        let mut session = self.take_session(&owner);
        if let Some(session) = session.as_mut().filter(|_| at < before) {
            session.renew_at = Tick::default();
        }
        self.ends.remove(&(before, Owner::clone(&owner)));
        self.ends.insert((at, Owner::clone(&owner)));
        if let Some(holder) = self.holders.get_mut(&owner) {
            holder.lease_end = at;
        }
        if let Some(session) = session {
            self.put_session(session);
        }
    }

    /// Gives a holder a fencing token.
    pub fn set_token(&mut self, owner: &[u8], token: i64) {
        if let Some(holder) = self.holders.get_mut(owner) {
            holder.token = token;
        }
    }

    /// Takes a holder's session, to be changed and put back.
    pub fn take_session(&mut self, owner: &[u8]) -> Option<Session> {
        let holder = self.holders.get_mut(owner)?;
        let (session, end) = (holder.session.take()?, holder.lease_end);
        self.forget_session(&session, end);
        Some(session)
    }

    /// Puts a session back.
    pub fn put_session(&mut self, session: Session) {
        let Some(holder) = self.holders.get(&session.owner) else {
            return;
        };
        self.index_session(&session, holder.lease_end);
        if let Some(holder) = self.holders.get_mut(&session.owner) {
            holder.session = Some(session);
        }
    }

    fn index_session(&mut self, session: &Session, end: Wall) {
        let owner = || Owner::clone(&session.owner);
        self.renewals.insert((session.renew_at, owner()));
        self.bound_ends.insert((end, owner()));
        for (connection, _) in &session.holders {
            self.bound.insert((*connection, owner()));
        }
    }

    fn forget_session(&mut self, session: &Session, end: Wall) {
        let owner = || Owner::clone(&session.owner);
        self.renewals.remove(&(session.renew_at, owner()));
        self.bound_ends.remove(&(end, owner()));
        for (connection, _) in &session.holders {
            self.bound.remove(&(*connection, owner()));
        }
    }
}
