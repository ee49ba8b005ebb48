//! The position of each waiter, found without walking the queue.
//!
//! Redisson's queue is a Redis list, and a list can drop an element from its middle cheaply only
//! if the element's index is known: finding it by value walks the queue. With 10,000 waiters that
//! disconnect at once, walking would cost 10,000 times 10,000 steps. So a [`Line`] stands beside the list. Each waiter
//! has a place in a vector, in the order of the queue, and a map knows the number of each owner's place. A waiter that
//! leaves leaves its place empty. A Fenwick tree counts the places that are taken: the number of those before a
//! waiter's is its index in the list. Joining, leaving from any place, the position of an
//! owner and the owner at a position each cost the logarithm of the queue's length.
//!
//! When most places are empty the others move together. That, and growing, moves all entries: a hundred thousand
//! waiters take some milliseconds for it, once in as many changes of the queue.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};

use super::parts::{Owner, Waiter};
use super::roomy::{give_back, is_too_roomy};

/// With fewer empty places than this, moving the others is never worth it.
const FEW: usize = 32;

/// An ordered set of waiters that knows everyone's position.
#[derive(Default)]
pub struct Line<S = RandomState> {
    /// The number of each owner's place.
    numbers: HashMap<Owner, usize, S>,
    /// In the order of the queue.
    places: Vec<Option<(Owner, Waiter)>>,
    /// The place of the waiter at the head: all before it are empty.
    head: usize,
    /// How many are known of by scripts or by their keys only.
    scripted: usize,
    /// `tree[i]` counts the waiters in the range of `i`, as usual for a Fenwick tree over the places; index 0 is not
    /// used.
    tree: Vec<usize>,
}

/// The lowest set bit: the length of the range that a Fenwick node covers.
fn span(node: usize) -> usize {
    node & node.wrapping_neg()
}

/// Number of waiters in the places before this one.
fn taken_before(tree: &[usize], place: usize) -> usize {
    let mut node = place;
    let mut sum = 0;
    while node > 0 {
        sum += tree.get(node).copied().unwrap_or(0);
        node -= span(node);
    }
    sum
}

impl<S: BuildHasher + Default> Line<S> {
    /// A line of these waiters, first the head. Of an owner named twice the first place counts.
    #[cfg(test)]
    pub fn of(waiters: impl IntoIterator<Item = (Owner, Waiter)>) -> Self {
        let mut line = Self::default();
        for (owner, waiter) in waiters {
            line.push(owner, waiter);
        }
        line
    }

    /// Whether it has never had a waiter.
    pub fn is_new(&self) -> bool {
        self.tree.is_empty()
    }

    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Whether a waiter is known by a command of its own.
    pub fn has_commanding(&self) -> bool {
        self.scripted < self.len()
    }

    /// Adds a waiter at the end; nothing happens if it is in the line already.
    pub fn push(&mut self, owner: Owner, waiter: Waiter) {
        let Entry::Vacant(number) = self.numbers.entry(Owner::clone(&owner)) else {
            return;
        };
        number.insert(self.places.len());
        self.scripted += usize::from(waiter.presence.is_scripted());
        self.places.push(Some((owner, waiter)));
        self.grow_tree();
    }

    /// Takes a waiter out, and tells which position it had.
    pub fn remove(&mut self, owner: &[u8]) -> Option<usize> {
        let place = self.numbers.remove(owner)?;
        let index = taken_before(&self.tree, place);
        let (_, waiter) = self.places.get_mut(place)?.take()?;
        self.scripted -= usize::from(waiter.presence.is_scripted());
        let mut node = place + 1;
        while let Some(count) = self.tree.get_mut(node) {
            *count -= 1;
            node += span(node);
        }
        while let Some(None) = self.places.get(self.head) {
            self.head += 1;
        }
        if self.places.len() > 2 * self.len() + FEW {
            self.move_together();
        }
        Some(index)
    }

    /// 0-based position of a waiter.
    pub fn position(&self, owner: &[u8]) -> Option<usize> {
        Some(taken_before(&self.tree, *self.numbers.get(owner)?))
    }

    /// The waiter at a 0-based position.
    pub fn at(&self, index: usize) -> Option<&(Owner, Waiter)> {
        if index >= self.len() {
            return None;
        }
        // Most steps ask for the head.
        if index == 0 {
            return self.places.get(self.head)?.as_ref();
        }
        // Descend to the last node whose prefix holds no more than `index` waiters.
        let mut node = 0;
        let mut left = index;
        let mut step = self.places.len().next_power_of_two();
        while step > 0 {
            if let Some(count) = self.tree.get(node + step)
                && *count <= left
            {
                node += step;
                left -= count;
            }
            step /= 2;
        }
        self.places.get(node)?.as_ref()
    }

    pub fn get(&self, owner: &[u8]) -> Option<Waiter> {
        let place = self.places.get(*self.numbers.get(owner)?)?;
        place.as_ref().map(|(_, waiter)| *waiter)
    }

    /// Replaces what is known of a waiter; nothing happens if it is not in the line.
    pub fn set(&mut self, owner: &[u8], waiter: Waiter) {
        self.change(owner, |known| *known = waiter);
    }

    /// Changes what is known of a waiter; nothing happens if it is not in the line.
    pub fn change(&mut self, owner: &[u8], change: impl FnOnce(&mut Waiter)) {
        let number = self.numbers.get(owner);
        let place = number.and_then(|number| self.places.get_mut(*number));
        if let Some((_, known)) = place.and_then(Option::as_mut) {
            self.scripted -= usize::from(known.presence.is_scripted());
            change(known);
            self.scripted += usize::from(known.presence.is_scripted());
        }
    }

    /// All waiters in order. Walks the line.
    pub fn iter(&self) -> impl Iterator<Item = (&Owner, Waiter)> {
        let waiters = self.places.iter().skip(self.head).flatten();
        waiters.map(|(owner, waiter)| (owner, *waiter))
    }

    /// The tree counts one place more: the next one, which is taken.
    fn grow_tree(&mut self) {
        let node = self.tree.len().max(1);
        self.tree.resize(node, 0);
        let [all, before] = [node - 1, node - span(node)].map(|at| taken_before(&self.tree, at));
        self.tree.push(all - before + 1);
    }

    /// Drops all empty places.
    fn move_together(&mut self) {
        for number in self.numbers.values_mut() {
            *number = taken_before(&self.tree, *number);
        }
        self.places.retain(Option::is_some);
        self.head = 0;
        self.tree.clear();
        self.tree.extend((0..=self.places.len()).map(span));
        give_back(&mut self.numbers);
        if is_too_roomy(self.places.capacity(), self.len()) {
            self.places.shrink_to_fit();
            self.tree.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::clock::{Heard, Wall};
    use super::super::parts::{Presence, Terms};
    use super::*;

    /// The first few ask by commands.
    fn waiter(lease: u64) -> Waiter {
        Waiter {
            presence: [Presence::Polling, Presence::Found][usize::from(lease > 2)],
            terms: Terms {
                lease,
                ..Terms::UNKNOWN
            },
            patience: 0,
            deadline: Heard::default(),
            score: Wall::default(),
            since: 0,
        }
    }

    fn owner(name: u16) -> Owner {
        Owner::from(name.to_be_bytes())
    }

    fn check(line: &Line, oracle: &[u16]) {
        assert_eq!(line.len(), oracle.len());
        assert_eq!(line.is_empty(), oracle.is_empty());
        let asks = |name: &u16| !waiter(u64::from(*name)).presence.is_scripted();
        assert_eq!(line.has_commanding(), oracle.iter().any(asks));
        for (index, name) in oracle.iter().enumerate() {
            let known = (owner(*name), waiter(u64::from(*name)));
            assert_eq!(line.at(index), Some(&known));
            assert_eq!(line.position(&known.0), Some(index));
            assert_eq!(line.get(&known.0), Some(known.1));
        }
        assert_eq!(line.at(oracle.len()), None);
        let walked: Vec<_> = line.iter().map(|(owner, _)| Owner::clone(owner)).collect();
        let expected: Vec<_> = oracle.iter().copied().map(owner).collect();
        assert_eq!(walked, expected);
        assert!(line.places.len() <= 2 * oracle.len() + FEW);
        assert!(line.places.capacity() <= 16 * oracle.len() + 2048);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// The naive oracle is a plain vector. Most leave a line of many, which moves together often.
        #[test]
        fn a_line_agrees_with_a_vector(
            many in any::<bool>(),
            steps in prop::collection::vec((0u8..8, 0u16..400), 0..2000),
        ) {
            let mut line: Line = Line::default();
            let mut oracle: Vec<u16> = (0..if many { 400 } else { 0 }).collect();
            for name in &oracle {
                line.push(owner(*name), waiter(u64::from(*name)));
            }
            for (step, (kind, name)) in steps.into_iter().enumerate() {
                let at = oracle.iter().position(|other| *other == name);
                if kind < if many { 1 } else { 4 } {
                    line.push(owner(name), waiter(u64::from(name)));
                    oracle.extend(Some(name).filter(|_| at.is_none()));
                } else {
                    prop_assert_eq!(line.remove(&owner(name)), at);
                    at.map(|at| oracle.remove(at));
                }
                if oracle.len() < 50 || step % 97 == 0 {
                    check(&line, &oracle);
                }
            }
        }
    }

    #[test]
    fn memory_is_given_back_when_less_than_an_eighth_of_a_crowd_is_left() {
        let mut line: Line = Line::default();
        for name in 0..20_000 {
            line.push(owner(name), waiter(1));
        }
        for name in 0..19_900 {
            line.remove(&owner(name));
        }
        let places = (line.places.capacity(), line.tree.capacity());
        assert!(line.numbers.capacity().max(places.0.max(places.1)) < 1024);
    }

    /// Else each one that leaves would cost as much as all that stay.
    #[test]
    fn the_others_move_together_only_when_most_places_are_empty() {
        let mut line: Line = Line::of((0..100).map(|name| (owner(name), waiter(1))));
        for name in 10..70 {
            line.remove(&owner(name));
        }
        assert_eq!(line.places.len(), 100);
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
        assert!(line.places.capacity() <= 4 * FEW);
    }

    #[test]
    fn what_is_known_of_a_waiter_can_change() {
        assert!(Line::<RandomState>::default().is_new());
        let mut line: Line = Line::of([(owner(1), waiter(1)), (owner(1), waiter(2))]);
        assert!(!line.is_new());
        assert_eq!(line.get(&owner(1)), Some(waiter(1)));
        assert!(line.has_commanding());
        line.set(&owner(1), waiter(3));
        line.set(&owner(2), waiter(4));
        assert_eq!(line.get(&owner(1)), Some(waiter(3)));
        assert_eq!(line.get(&owner(2)), None);
        assert!(!line.has_commanding());
    }
}
