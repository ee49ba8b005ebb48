//! The identity of a lock: its database and its name.

use std::rc::Rc;

/// A lock of one database.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId {
    /// The database's number.
    pub db: i32,
    /// The lock's key.
    pub name: Rc<[u8]>,
}

impl LockId {
    /// The lock of this name in this database.
    #[must_use]
    pub fn new(db: i32, name: &[u8]) -> Self {
        let name = Rc::from(name);
        Self { db, name }
    }

    /// Where the lock is after two databases have changed places.
    #[must_use]
    pub fn swapped(mut self, one: i32, other: i32) -> Self {
        if self.db == one {
            self.db = other;
        } else if self.db == other {
            self.db = one;
        }
        self
    }
}
