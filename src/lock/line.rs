//! The position of each waiter, found without walking the queue.
//!
//! Redisson's queue is a Redis list, and a list can drop an element from its middle cheaply only
//! if the element's index is known: finding it by value walks the queue. With 10,000 waiters that
//! disconnect at once, walking would cost 10,000 times 10,000 steps. So a [`Line`] stands beside
//! the list. Its waiters stand in blocks of up to 64, in the order of the queue. For each owner it is known in
//! which block it stands, and a Fenwick tree counts the waiters of each block; the number of waiters in the blocks
//! before, and before it in its own, is its index in the list. Joining, leaving from any place, the position of an
//! owner and the owner at a position each cost the logarithm of the queue's length.
//!
//! A block that is left by its last waiter is freed, one that is left by most is packed. Where an owner stands is in a
//! hash map, which moves all entries when it has no room: with a million waiters that takes a tenth of a second once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::state::{Owner, Waiter};

/// Places in a block: one for each bit of [`Block::occupied`].
const PLACES: usize = 64;
/// A block with fewer places than these is never worth packing.
const SMALL: usize = 8;
/// Fewer blocks than these are never worth thinning out.
const FEW_BLOCKS: usize = 4;
/// Room for so many owners is always kept.
const ROOMY: usize = 1024;

/// An ordered set of waiters that knows everyone's position.
#[derive(Debug)]
pub struct Line<S = RandomState> {
    /// Where each owner stands.
    spots: HashMap<Owner, Spot, S>,
    /// In the order of the queue.
    blocks: Vec<Block>,
    /// No block before this one has waiters, so that the head is found at once.
    first: usize,
    /// Number of empty blocks, not counting the last block.
    left: usize,
    /// The number of the next block.
    next: u64,
    /// `tree[i]` counts the waiters in the range of `i`, as usual for a Fenwick tree over the blocks; index 0 is not
    /// used.
    tree: Vec<usize>,
    /// Number of waiters that are known by scripts only.
    scripted: usize,
}

/// Where a waiter stands.
#[derive(Clone, Copy, Debug)]
struct Spot {
    /// The number of its block.
    block: u64,
    place: usize,
}

/// Some waiters who stand one behind the other.
#[derive(Debug)]
struct Block {
    /// Grows from each block to the next.
    number: u64,
    /// A bit for each place, the lowest for the first.
    occupied: u64,
    places: Vec<Option<(Owner, Waiter)>>,
}

impl Block {
    fn waiters(&self) -> usize {
        self.occupied.count_ones() as usize
    }

    /// Number of waiters before a place.
    fn count_before(&self, place: usize) -> usize {
        let before = self.occupied & !(u64::MAX << place);
        before.count_ones() as usize
    }

    /// The waiter with so many before it in the block.
    fn nth(&self, index: usize) -> Option<&(Owner, Waiter)> {
        let mut occupied = self.occupied;
        for _ in 0..index {
            occupied &= occupied.wrapping_sub(1);
        }
        self.places
            .get(occupied.trailing_zeros() as usize)?
            .as_ref()
    }

    /// Whether it is worth packing: most have left.
    fn is_sparse(&self) -> bool {
        self.places.len() >= SMALL && self.waiters() * 4 <= self.places.len()
    }
}

/// The lowest set bit: the length of the range that a Fenwick node covers.
fn span(node: usize) -> usize {
    node & node.wrapping_neg()
}

impl<S: Default> Default for Line<S> {
    fn default() -> Self {
        Self {
            spots: HashMap::default(),
            blocks: Vec::new(),
            first: 0,
            left: 0,
            next: 0,
            tree: Vec::new(),
            scripted: 0,
        }
    }
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

    /// Whether nobody has ever been in it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.next == 0
    }

    /// Number of waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spots.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spots.is_empty()
    }

    /// Adds a waiter at the end; nothing happens if it is in the line already.
    pub fn push(&mut self, owner: Owner, waiter: Waiter) {
        if self
            .blocks
            .last()
            .is_none_or(|last| last.places.len() == PLACES)
        {
            self.add_block();
        }
        let Some(last) = self.blocks.last_mut() else {
            return;
        };
        let (block, place) = (last.number, last.places.len());
        let spot = Spot { block, place };
        if let Some(known) = self.spots.insert(Owner::clone(&owner), spot) {
            self.spots.insert(owner, known);
            return;
        }
        self.scripted += usize::from(waiter.presence.is_scripted());
        last.occupied |= 1 << place;
        last.places.push(Some((owner, waiter)));
        if let Some(count) = self.tree.last_mut() {
            *count += 1;
        }
    }

    /// Number of waiters that are known by scripts only.
    #[must_use]
    pub fn scripted(&self) -> usize {
        self.scripted
    }

    /// Takes a waiter out, and tells which position it had.
    pub fn remove(&mut self, owner: &[u8]) -> Option<usize> {
        let Spot {
            block: number,
            place,
        } = self.spots.remove(owner)?;
        let room = self.spots.capacity();
        if room > ROOMY && room / 8 > self.spots.len() {
            self.spots.shrink_to(self.spots.len() * 2);
        }
        let at = self.index_of(number)?;
        let blocks_before = self.count_before(at);
        let block = self.blocks.get_mut(at)?;
        let index = blocks_before + block.count_before(place);
        let left = block.places.get_mut(place).and_then(Option::take);
        block.occupied &= !(1 << place);
        let was_scripted = left.is_some_and(|(_, waiter)| waiter.presence.is_scripted());
        self.scripted -= usize::from(was_scripted);
        let mut node = at + 1;
        while let Some(count) = self.tree.get_mut(node) {
            *count -= 1;
            node += span(node);
        }
        self.tidy(at);
        Some(index)
    }

    /// 0-based position of a waiter.
    #[must_use]
    pub fn position(&self, owner: &[u8]) -> Option<usize> {
        let spot = self.spots.get(owner)?;
        let at = self.index_of(spot.block)?;
        let block = self.blocks.get(at)?;
        Some(self.count_before(at) + block.count_before(spot.place))
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
            return self.blocks.get(self.first)?.nth(0);
        }
        // Descend to the last node whose prefix holds no more than `index` waiters.
        let mut node = 0;
        let mut left = index;
        let mut step = self.blocks.len().next_power_of_two();
        while step > 0 {
            if let Some(count) = self.tree.get(node + step)
                && *count <= left
            {
                node += step;
                left -= count;
            }
            step /= 2;
        }
        self.blocks.get(node)?.nth(left)
    }

    /// What is known of a waiter.
    #[must_use]
    pub fn get(&self, owner: &[u8]) -> Option<Waiter> {
        let spot = self.spots.get(owner)?;
        let block = self.blocks.get(self.index_of(spot.block)?)?;
        let place = block.places.get(spot.place)?.as_ref();
        place.map(|(_, waiter)| *waiter)
    }

    /// Replaces what is known of a waiter; nothing happens if it is not in the line.
    pub fn set(&mut self, owner: &[u8], waiter: Waiter) {
        self.change(owner, |known| *known = waiter);
    }

    /// Changes what is known of a waiter; nothing happens if it is not in the line.
    pub fn change(&mut self, owner: &[u8], change: impl FnOnce(&mut Waiter)) {
        let Some(Spot { block, place }) = self.spots.get(owner).copied() else {
            return;
        };
        let block = self.index_of(block).and_then(|at| self.blocks.get_mut(at));
        let place = block.and_then(|block| block.places.get_mut(place));
        if let Some((_, known)) = place.and_then(Option::as_mut) {
            self.scripted -= usize::from(known.presence.is_scripted());
            change(known);
            self.scripted += usize::from(known.presence.is_scripted());
        }
    }

    /// All waiters in order. Walks the line.
    pub fn iter(&self) -> impl Iterator<Item = (&Owner, Waiter)> {
        let places = self.blocks.iter().flat_map(|block| &block.places);
        let waiters = places.flatten();
        waiters.map(|(owner, waiter)| (owner, *waiter))
    }

    fn add_block(&mut self) {
        // Only a line that had a full block before will need all places.
        let places = if self.blocks.is_empty() { 0 } else { PLACES };
        self.blocks.push(Block {
            number: self.next,
            occupied: 0,
            places: Vec::with_capacity(places),
        });
        self.next += 1;
        if self.tree.is_empty() {
            self.tree.push(0);
        }
        let node = self.blocks.len();
        let range = self.count_before(node - 1) - self.count_before(node - span(node));
        self.tree.push(range);
    }

    /// The index of the block with this number.
    fn index_of(&self, number: u64) -> Option<usize> {
        let offset = number - self.blocks.first()?.number;
        // Most often no block before it was dropped.
        let guess = usize::try_from(offset).ok()?;
        if self
            .blocks
            .get(guess)
            .is_some_and(|block| block.number == number)
        {
            return Some(guess);
        }
        let found = self
            .blocks
            .binary_search_by_key(&number, |block| block.number);
        found.ok()
    }

    /// Number of waiters in the blocks before this one.
    fn count_before(&self, block: usize) -> usize {
        let mut node = block;
        let mut sum = 0;
        while node > 0 {
            sum += self.tree.get(node).copied().unwrap_or(0);
            node -= span(node);
        }
        sum
    }

    /// A waiter has left a block.
    fn tidy(&mut self, at: usize) {
        let is_last = at + 1 == self.blocks.len();
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        if block.occupied != 0 {
            // The first will be left by all soon.
            if at > self.first && block.is_sparse() {
                self.pack(at);
            }
            return;
        }
        if is_last {
            // The next waiter joins it.
            block.places.clear();
        } else {
            block.places = Vec::new();
            self.left += 1;
        }
        while self.first + 1 < self.blocks.len()
            && self
                .blocks
                .get(self.first)
                .is_some_and(|first| first.occupied == 0)
        {
            self.first += 1;
        }
        if self.blocks.len() > FEW_BLOCKS && self.left * 2 > self.blocks.len() {
            self.drop_left();
        }
    }

    /// Moves the waiters of a block together.
    fn pack(&mut self, at: usize) {
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        let places = std::mem::take(&mut block.places);
        block.places = places.into_iter().flatten().map(Some).collect();
        block.places.shrink_to_fit();
        block.occupied = !(u64::MAX << block.places.len());
        for (place, (owner, _)) in block.places.iter().flatten().enumerate() {
            let block = block.number;
            self.spots
                .insert(Owner::clone(owner), Spot { block, place });
        }
    }

    /// Drops the blocks that all waiters have left.
    fn drop_left(&mut self) {
        let last = self.next - 1;
        self.blocks
            .retain(|block| block.occupied != 0 || block.number == last);
        self.left = 0;
        self.first = 0;
        self.tree.clear();
        self.tree.push(0);
        self.tree.extend(self.blocks.iter().map(Block::waiters));
        for node in 1..self.tree.len() {
            let count = self.tree.get(node).copied().unwrap_or(0);
            if let Some(next) = self.tree.get_mut(node + span(node)) {
                *next += count;
            }
        }
        self.blocks.shrink_to(self.blocks.len() * 2);
        self.tree.shrink_to(self.tree.len() * 2);
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

    fn check(line: &Line, oracle: &[u16]) {
        assert_eq!(line.len(), oracle.len());
        for (index, name) in oracle.iter().enumerate() {
            assert_eq!(line.nth(index), Some(&owner(*name)));
            assert_eq!(line.position(&owner(*name)), Some(index));
            assert_eq!(line.get(&owner(*name)), Some(waiter(u64::from(*name))));
        }
        assert_eq!(line.nth(oracle.len()), None);
        let walked: Vec<_> = line.iter().map(|(owner, _)| Owner::clone(owner)).collect();
        let expected: Vec<_> = oracle.iter().copied().map(owner).collect();
        assert_eq!(walked, expected);
        let room: usize = line
            .blocks
            .iter()
            .map(|block| block.places.capacity())
            .sum();
        // The first and the last block may be sparse.
        assert!(
            room <= SMALL * oracle.len() + 3 * PLACES,
            "{room} for {}",
            oracle.len()
        );
        assert!(line.blocks.len() <= 2 * oracle.len() + FEW_BLOCKS + 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Many blocks: all come, and leave in any order while others come.
        #[test]
        fn a_long_line_agrees_with_a_vector(
            leaves in prop::collection::vec(any::<prop::sample::Index>(), 2000..3000),
            comes_every in 2u16..40,
        ) {
            let mut line: Line = Line::default();
            let mut oracle: Vec<u16> = (0..2000).collect();
            for name in &oracle {
                line.push(owner(*name), waiter(u64::from(*name)));
            }
            for (step, at) in (0u16..).zip(leaves) {
                if step % comes_every == 0 {
                    let name = 2000 + step;
                    line.push(owner(name), waiter(u64::from(name)));
                    oracle.push(name);
                }
                if !oracle.is_empty() {
                    let at = at.index(oracle.len());
                    let name = oracle.remove(at);
                    prop_assert_eq!(line.remove(&owner(name)), Some(at));
                }
                if step % 97 == 0 {
                    check(&line, &oracle);
                }
            }
            check(&line, &oracle);
        }
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
                check(&line, &oracle);
            }
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
        assert!(line.blocks.len() <= FEW_BLOCKS && line.blocks.capacity() <= 4 * FEW_BLOCKS);
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
