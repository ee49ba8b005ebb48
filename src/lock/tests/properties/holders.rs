//! The holders, as clients know them.

use std::collections::BTreeMap;

use crate::lock::{Connection, Millis, Owner};

/// A holder of the lock.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) owner: Owner,
    /// How many holders it tolerates, itself included; 0 for any number.
    pub(super) limit: u32,
    pub(super) holds: i64,
    /// Its token; none if it came by a script, or if the token's key was lost.
    pub(super) token: Option<i64>,
    /// The last millisecond of its lease. With a session: as last seen, because renewals emit no event.
    pub(super) lease_end: Millis,
    /// The connections that it relies on, with the holds they brought.
    pub(super) bound: BTreeMap<Connection, i64>,
}

impl Holder {
    pub(super) fn is_exclusive(&self) -> bool {
        self.limit == 1
    }

    /// It has asked again, with ONCE or without.
    pub(super) fn hold_again(&mut self, once: bool, session: Option<Connection>) {
        self.holds += i64::from(!once);
        match session {
            Some(connection) if once => self.bound = BTreeMap::from([(connection, self.holds)]),
            Some(connection) => *self.bound.entry(connection).or_default() += 1,
            None => (),
        }
    }
}

/// The holders as clients know them.
#[derive(Debug, Default)]
pub(super) struct Holders(Vec<Holder>);

impl Holders {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Holder> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Holder> {
        self.0.iter_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn nth(&self, nth: usize) -> Option<&Holder> {
        self.0.get(nth.checked_rem(self.0.len())?)
    }

    pub(super) fn get(&self, owner: &[u8]) -> Option<&Holder> {
        self.0.iter().find(|holder| *holder.owner == *owner)
    }

    pub(super) fn get_mut(&mut self, owner: &[u8]) -> Option<&mut Holder> {
        self.0.iter_mut().find(|holder| *holder.owner == *owner)
    }

    pub(super) fn push(&mut self, holder: Holder) {
        self.0.push(holder);
    }

    pub(super) fn remove(&mut self, owner: &[u8]) {
        self.0.retain(|holder| *holder.owner != *owner);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes out the shared holders for which this is true. Returns them.
    pub(super) fn take_shared_if(&mut self, is_over: impl Fn(&Holder) -> bool) -> Vec<Holder> {
        let taken = |holder: &mut Holder| !holder.is_exclusive() && is_over(holder);
        self.0.extract_if(.., taken).collect()
    }

    /// A connection closes: the holds that it brought are given up.
    pub(super) fn close(&mut self, connection: Connection) {
        for holder in &mut self.0 {
            holder.holds -= holder.bound.remove(&connection).unwrap_or(0);
        }
        self.0.retain(|holder| holder.holds > 0);
    }

    /// The one rule: each has a limit of holders in all, itself included.
    pub(super) fn tolerate_each_other(&self) -> bool {
        self.0
            .iter()
            .all(|holder| tolerates(holder.limit, self.0.len()))
    }

    /// Whether one more with this limit may join them.
    pub(super) fn have_room(&self, limit: u32) -> bool {
        let all = self.0.len() + 1;
        tolerates(limit, all) && self.0.iter().all(|holder| tolerates(holder.limit, all))
    }
}

fn tolerates(limit: u32, holders: usize) -> bool {
    limit == 0 || u32::try_from(holders).is_ok_and(|holders| holders <= limit)
}
