//! Which locks are bound to which connection.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::lock::Connection;

use super::table::{LockId, is_too_roomy};

thread_local! {
    static BOUND: RefCell<HashMap<Connection, HashSet<LockId, RandomState>, RandomState>> = RefCell::default();
}

/// A lock is bound to a connection.
pub fn bound(connection: Connection, lock: &LockId) {
    BOUND.with_borrow_mut(|bound| bound.entry(connection).or_default().insert(lock.clone()));
}

/// A lock is not bound to a connection any more.
pub fn unbound(connection: Connection, lock: &LockId) {
    BOUND.with_borrow_mut(|bound| {
        if let Some(locks) = bound.get_mut(&connection) {
            locks.remove(lock);
            if locks.is_empty() {
                bound.remove(&connection);
            } else if is_too_roomy(locks.capacity(), locks.len()) {
                locks.shrink_to(locks.len() * 2);
            }
        }
    });
}

/// The locks bound to a connection that closes. Each of them is still to be given up.
#[must_use]
pub fn take(connection: Connection) -> Vec<LockId> {
    BOUND.with_borrow_mut(|bound| {
        let locks = bound.remove(&connection);
        locks.into_iter().flatten().collect()
    })
}

/// Number of locks bound to connections; one bound to two counts twice.
#[must_use]
pub fn count() -> usize {
    BOUND.with_borrow(|bound| bound.values().map(HashSet::len).sum())
}

/// Two databases have changed places, and the sessions with them.
pub fn swap(one: i32, other: i32) {
    BOUND.with_borrow_mut(|bound| {
        for locks in bound.values_mut() {
            let swapped = std::mem::take(locks).into_iter();
            *locks = swapped.map(|lock| lock.swapped(one, other)).collect();
        }
    });
}

/// Forgets all: the locks live on by their leases.
pub fn clear() {
    BOUND.with_borrow_mut(HashMap::clear);
}
