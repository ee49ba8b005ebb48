//! The position of each waiter, found without walking the queue.
//!
//! Redisson's queue is a Redis list, and a list can drop an element from its middle cheaply only
//! if the element's index is known: finding it by value walks the queue. With 10,000 waiters that
//! disconnect at once, walking would cost 10,000 times 10,000 steps. So a [`Line`] stands beside
//! the list. It remembers for each owner the slot it was given when it joined, and counts the
//! occupied slots with a Fenwick tree; the number of occupied slots before an owner's slot is its
//! index in the list. Joining, leaving from any place, the position of an owner and the owner at
//! a position each cost the logarithm of the queue's length.
//!
//! A slot is given out once and never reused. Slots at the front, of waiters that were served, are dropped
//! when they are half of all slots; the others keep their numbers, so this takes milliseconds even with a
//! million waiters. When most slots in the middle are empty, all are renumbered. Both cost O(1) per slot,
//! amortised.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};

use super::state::{Owner, Waiter};

/// Fewer slots than this are never worth numbering anew.
const SMALL: usize = 64;

/// An ordered set of waiters that knows everyone's position.
#[derive(Debug, Default)]
pub struct Line<S = RandomState> {
    /// The number of each owner's slot.
    places: HashMap<Owner, usize, S>,
    slots: Vec<Option<(Owner, Waiter)>>,
    /// The number of the first slot that was not dropped.
    base: usize,
    /// No slot before this one is occupied, so that the head is found at once.
    first: usize,
    /// `tree[i]` counts the occupied slots in the range of `i`, as usual for a Fenwick tree;
    /// index 0 is not used.
    tree: Vec<usize>,
    /// Number of waiters that are known by scripts only.
    scripted: usize,
}

/// The lowest set bit: the length of the range that a Fenwick node covers.
fn span(node: usize) -> usize {
    node & node.wrapping_neg()
}

impl<S: BuildHasher + Default> Line<S> {
    /// A line of these waiters, first the head. Of an owner named twice the first place counts.
    #[must_use]
    pub fn of(waiters: impl IntoIterator<Item = (Owner, Waiter)>) -> Self {
        let mut line = Self::default();
        for (owner, waiter) in waiters {
            line.push(owner, waiter);
        }
        line
    }

    /// Number of waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a waiter at the end; nothing happens if it is in the line already.
    pub fn push(&mut self, owner: Owner, waiter: Waiter) {
        let slot = self.slots.len();
        let Entry::Vacant(place) = self.places.entry(Owner::clone(&owner)) else {
            return;
        };
        place.insert(self.base + slot);
        if self.tree.is_empty() {
            self.tree.push(0);
        }
        let node = slot + 1;
        let before_range = self.count_before(node - span(node));
        let occupied = self.count_before(slot) - before_range + 1;
        self.tree.push(occupied);
        self.scripted += usize::from(waiter.presence.is_scripted());
        self.slots.push(Some((owner, waiter)));
    }

    /// Number of waiters that are known by scripts only.
    #[must_use]
    pub fn scripted(&self) -> usize {
        self.scripted
    }

    /// Takes a waiter out, and tells which position it had.
    pub fn remove(&mut self, owner: &[u8]) -> Option<usize> {
        let number = self.places.remove(owner)?;
        let slot = number - self.base;
        let index = self.count_before(slot);
        let left = self.slots.get_mut(slot).and_then(Option::take);
        let was_scripted = left.is_some_and(|(_, waiter)| waiter.presence.is_scripted());
        self.scripted -= usize::from(was_scripted);
        while self.slots.get(self.first).is_some_and(Option::is_none) {
            self.first += 1;
        }
        let mut node = slot + 1;
        while let Some(count) = self.tree.get_mut(node) {
            *count -= 1;
            node += span(node);
        }
        self.drop_front();
        self.renumber_if_sparse();
        Some(index)
    }

    /// 0-based position of a waiter.
    #[must_use]
    pub fn position(&self, owner: &[u8]) -> Option<usize> {
        let number = self.places.get(owner)?;
        Some(self.count_before(number - self.base))
    }

    /// The owner at a 0-based position.
    #[must_use]
    pub fn nth(&self, index: usize) -> Option<&Owner> {
        self.at(index).map(|(owner, _)| owner)
    }

    /// The waiter at a 0-based position.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&(Owner, Waiter)> {
        if index >= self.len() {
            return None;
        }
        if index == 0 {
            return self.slots.get(self.first)?.as_ref();
        }
        // Descend to the last node whose prefix holds no more than `index` waiters.
        let mut node = 0;
        let mut left = index;
        let mut step = self.slots.len().next_power_of_two();
        while step > 0 {
            if let Some(count) = self.tree.get(node + step)
                && *count <= left
            {
                node += step;
                left -= count;
            }
            step /= 2;
        }
        self.slots.get(node)?.as_ref()
    }

    /// What is known of a waiter.
    #[must_use]
    pub fn get(&self, owner: &[u8]) -> Option<Waiter> {
        let number = self.places.get(owner)?;
        let place = self.slots.get(number - self.base)?.as_ref();
        place.map(|(_, waiter)| *waiter)
    }

    /// Changes what is known of a waiter; nothing happens if it is not in the line.
    pub fn set(&mut self, owner: &[u8], waiter: Waiter) {
        let number = self.places.get(owner);
        let place = number.and_then(|number| self.slots.get_mut(number - self.base));
        if let Some((_, known)) = place.and_then(Option::as_mut) {
            self.scripted -= usize::from(known.presence.is_scripted());
            self.scripted += usize::from(waiter.presence.is_scripted());
            *known = waiter;
        }
    }

    /// All waiters in order. Walks the line.
    pub fn iter(&self) -> impl Iterator<Item = (&Owner, Waiter)> {
        let waiters = self.slots.iter().flatten();
        waiters.map(|(owner, waiter)| (owner, *waiter))
    }

    /// Number of waiters in the slots before `slot`.
    fn count_before(&self, slot: usize) -> usize {
        let mut node = slot;
        let mut sum = 0;
        while node > 0 {
            sum += self.tree.get(node).copied().unwrap_or(0);
            node -= span(node);
        }
        sum
    }

    /// Drops the empty slots at the front, once they are half of all.
    fn drop_front(&mut self) {
        if self.first < SMALL || self.first * 2 < self.slots.len() {
            return;
        }
        self.slots.drain(..self.first);
        self.base += self.first;
        self.first = 0;
        if self.slots.capacity() / 4 > self.slots.len() {
            self.slots.shrink_to(self.slots.len() * 2);
        }
        if self.places.capacity() / 8 > self.places.len() {
            self.places.shrink_to(self.places.len() * 2);
        }
        self.tree = self.counted();
    }

    /// The tree for the slots as they are.
    fn counted(&self) -> Vec<usize> {
        let mut tree = Vec::with_capacity(self.slots.len() + 1);
        tree.push(0);
        tree.extend(self.slots.iter().map(|slot| usize::from(slot.is_some())));
        for node in 1..tree.len() {
            let count = tree.get(node).copied().unwrap_or(0);
            if let Some(next) = tree.get_mut(node + span(node)) {
                *next += count;
            }
        }
        tree
    }

    fn renumber_if_sparse(&mut self) {
        if self.slots.len() < SMALL || self.len() * 2 > self.slots.len() {
            return;
        }
        let waiters: Vec<_> = self
            .iter()
            .map(|(owner, waiter)| (Owner::clone(owner), waiter))
            .collect();
        *self = Self::of(waiters);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::state::{Limit, Presence};
    use super::*;

    fn waiter(lease: u64) -> Waiter {
        Waiter {
            presence: Presence::Polling,
            lease,
            patience: 0,
            session: None,
            limit: Limit::EXCLUSIVE,
            deadline: 0,
            score: 0,
            since: 0,
        }
    }

    fn owner(name: u16) -> Owner {
        Owner::from(name.to_be_bytes())
    }

    proptest! {
        /// The naive oracle is a plain vector.
        #[test]
        fn a_line_agrees_with_a_vector(steps in prop::collection::vec((any::<bool>(), 0u16..200), 0..600)) {
            let mut line: Line = Line::default();
            let mut oracle: Vec<u16> = Vec::new();
            for (join, name) in steps {
                if join {
                    line.push(owner(name), waiter(u64::from(name)));
                    if !oracle.contains(&name) {
                        oracle.push(name);
                    }
                } else {
                    let at = oracle.iter().position(|other| *other == name);
                    prop_assert_eq!(line.remove(&owner(name)), at);
                    if let Some(at) = at {
                        oracle.remove(at);
                    }
                }
                prop_assert_eq!(line.len(), oracle.len());
                for (index, name) in oracle.iter().enumerate() {
                    prop_assert_eq!(line.nth(index), Some(&owner(*name)));
                    prop_assert_eq!(line.position(&owner(*name)), Some(index));
                }
                prop_assert_eq!(line.nth(oracle.len()), None);
            }
            let walked: Vec<_> = line.iter().map(|(owner, _)| Owner::clone(owner)).collect();
            let expected: Vec<_> = oracle.into_iter().map(owner).collect();
            prop_assert_eq!(walked, expected);
        }
    }

    #[test]
    fn a_long_line_that_is_served_from_the_head_stays_small() {
        let mut line: Line = Line::default();
        for name in 0..20_000u16 {
            line.push(owner(name), waiter(1));
            if name >= 10 {
                assert_eq!(line.remove(&owner(name - 10)), Some(0));
            }
        }
        assert!(line.slots.len() < 4 * SMALL);
    }

    #[test]
    fn waiters_known_by_scripts_only_are_counted() {
        let with = |presence| Waiter {
            presence,
            ..waiter(1)
        };
        let mut line: Line = Line::default();
        line.push(owner(1), with(Presence::Found));
        line.push(owner(2), with(Presence::Polling));
        line.push(owner(3), with(Presence::Asked));
        assert_eq!(line.scripted(), 2);
        line.set(&owner(2), with(Presence::Found));
        line.set(&owner(1), with(Presence::Blocked(1)));
        line.remove(&owner(3));
        assert_eq!(line.scripted(), 1);
    }

    #[test]
    fn what_is_known_of_a_waiter_can_change() {
        let mut line: Line = Line::of([(owner(1), waiter(1)), (owner(1), waiter(2))]);
        assert_eq!(line.get(&owner(1)), Some(waiter(1)));
        line.set(&owner(1), waiter(3));
        line.set(&owner(2), waiter(4));
        assert_eq!(line.get(&owner(1)), Some(waiter(3)));
        assert_eq!(line.get(&owner(2)), None);
    }
}
