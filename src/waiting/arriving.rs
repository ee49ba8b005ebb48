//! Locks with waiters whose keys are here before their slot is this node's own: the slot is on its way here,
//! key by key, or with all that happens in it at the node that has it still (CLUSTER MIGRATESLOTS of Valkey).
//!
//! That node serves them: until the slot is here they are not looked at, counted or listed here. All
//! that is kept is which there are. What becomes of them is in [`moving`](super::moving).

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::keyspace::names;

use super::id::LockId;

type Locks = HashSet<LockId, RandomState>;

/// The locks of slots that are not here yet.
#[derive(Debug, Default)]
pub struct Arriving {
    by_slot: HashMap<u16, Locks, RandomState>,
    /// Number of imports of which the beginning was seen, and not the end.
    imports: usize,
}

impl Arriving {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    /// A lock has waiters, and its slot is not here.
    pub fn add(&mut self, lock: &LockId) {
        let slot = names::slot(&lock.name);
        self.by_slot.entry(slot).or_default().insert(lock.clone());
    }

    /// A lock has no waiters any more, as where its keys are taken back.
    pub fn remove(&mut self, lock: &LockId) {
        if self.is_empty() {
            return;
        }
        let slot = names::slot(&lock.name);
        if let Some(locks) = self.by_slot.get_mut(&slot) {
            locks.remove(lock);
            if locks.is_empty() {
                self.by_slot.remove(&slot);
            }
        }
    }

    /// One lock of each slot.
    #[must_use]
    pub fn one_of_each_slot(&self) -> Vec<LockId> {
        let slots = self.by_slot.values();
        slots
            .filter_map(|locks| locks.iter().next().cloned())
            .collect()
    }

    /// Takes out all locks that are in the same slot as this one.
    pub fn take_slot_of(&mut self, lock: &LockId) -> impl Iterator<Item = LockId> + use<> {
        let locks = self.by_slot.remove(&names::slot(&lock.name));
        locks.into_iter().flatten()
    }

    /// Takes out all.
    pub fn take_all(&mut self) -> impl Iterator<Item = LockId> + use<> {
        std::mem::take(&mut self.by_slot).into_values().flatten()
    }

    /// An import has begun.
    pub fn begins(&mut self) {
        self.imports += 1;
    }

    /// An import has ended. False if this or another one had begun unseen, before the module was loaded.
    pub fn ends(&mut self) -> bool {
        let seen = self.imports > 0;
        self.imports = self.imports.saturating_sub(1);
        seen
    }
}
