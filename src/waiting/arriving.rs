//! Locks with waiters whose keys are at this node before it owns their slot. The slot is being migrated to this
//! node: key by key, or by replicating the slot from its owner (Valkey's CLUSTER MIGRATESLOTS).
//!
//! The slot's owner still serves these locks. Until the slot is here they are not looked at, counted or listed;
//! only their identities are kept. What is done once the slot is here is in [`moving`](super::moving).

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::keyspace::names;

use super::id::LockId;

type Locks = HashSet<LockId, RandomState>;

/// The locks of slots that are not here yet.
#[derive(Debug, Default)]
pub struct Arriving {
    by_slot: HashMap<u16, Locks, RandomState>,
    /// Number of slot imports that have begun and not ended.
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

    /// A lock has no waiters here any more, for instance because its keys were moved back.
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
