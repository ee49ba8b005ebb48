//! Which locks are bound to which connection. Nothing but data: giving a lock up is a step.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::lock::Connection;

use super::id::LockId;
use super::shrink::is_too_roomy;

/// The locks bound to each connection.
#[derive(Debug, Default)]
pub struct Sessions {
    bound: HashMap<Connection, HashSet<LockId, RandomState>, RandomState>,
}

impl Sessions {
    /// A lock is bound to a connection.
    pub fn bind(&mut self, connection: Connection, lock: &LockId) {
        let locks = self.bound.entry(connection).or_default();
        locks.insert(lock.clone());
    }

    /// A lock is not bound to a connection any more.
    pub fn unbind(&mut self, connection: Connection, lock: &LockId) {
        let Some(locks) = self.bound.get_mut(&connection) else {
            return;
        };
        locks.remove(lock);
        if locks.is_empty() {
            self.bound.remove(&connection);
        } else if is_too_roomy(locks.capacity(), locks.len()) {
            locks.shrink_to(locks.len() * 2);
        }
    }

    /// The locks bound to a connection that closes. Each of them is still to be given up.
    pub fn take(&mut self, connection: Connection) -> Vec<LockId> {
        let locks = self.bound.remove(&connection);
        locks.into_iter().flatten().collect()
    }

    /// Number of locks bound to connections; one bound to two counts twice.
    pub fn count(&self) -> usize {
        self.bound.values().map(HashSet::len).sum()
    }

    /// Two databases have changed places, and the sessions with them.
    pub fn swap(&mut self, one: i32, other: i32) {
        for locks in self.bound.values_mut() {
            let swapped = std::mem::take(locks).into_iter();
            *locks = swapped.map(|lock| lock.swapped(one, other)).collect();
        }
    }

    /// Forgets all: the locks live on by their leases.
    pub fn clear(&mut self) {
        self.bound.clear();
    }
}
