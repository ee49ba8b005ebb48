//! A hash map by owner that never stops to grow or to shrink.
//!
//! The standard map moves all its entries when it is full: with a million waiters the join that fills it takes a
//! tenth of a second, in which the server answers nobody. So the entries are spread over several standard maps of
//! a few thousand each, and their number changes by one at a time (linear hashing): a new part takes over half
//! of the entries of one other, and gives them back when it is not needed any more.
//!
//! With one part, as nearly all locks have, it is the standard map.

use std::collections::HashMap;
use std::hash::BuildHasher;

use super::state::Owner;

/// Entries for each part, beyond which there is one part more.
const MOST: usize = 2048;
/// Entries for each part, below which there is one part less. Far from [`MOST`], so that parts do not come and go.
const LEAST: usize = 512;

/// A hash map by owner.
#[derive(Debug)]
pub struct OwnerMap<V, S> {
    /// Each owner's part follows from its hash and the number of parts. None until the first entry.
    parts: Vec<HashMap<Owner, V, S>>,
    len: usize,
}

impl<V, S> Default for OwnerMap<V, S> {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            len: 0,
        }
    }
}

/// The parts that there are once each part was split as often as the last one: the next power of two.
fn all_split(parts: usize) -> usize {
    parts.next_power_of_two()
}

/// The part that gave the last of so many parts half of its entries.
fn origin_of_last(parts: usize) -> usize {
    let last = parts.saturating_sub(1);
    last.saturating_sub(all_split(parts) / 2)
}

/// The part of a hash among so many.
fn part_of(hash: u64, parts: usize) -> usize {
    // The parts use the lowest and the highest bits themselves.
    let bits = usize::try_from(hash >> 32).unwrap_or(0);
    let all = all_split(parts);
    let part = bits & (all - 1);
    // The part is not there yet: its entries are still where they will be taken from.
    if part < parts { part } else { part - all / 2 }
}

impl<V, S: BuildHasher + Default> OwnerMap<V, S> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of an owner.
    #[must_use]
    pub fn get(&self, owner: &[u8]) -> Option<&V> {
        self.parts.get(self.part(owner))?.get(owner)
    }

    /// Sets the value of an owner. Returns the one that it had.
    pub fn insert(&mut self, owner: Owner, value: V) -> Option<V> {
        if self.parts.is_empty() {
            self.parts.push(HashMap::default());
        }
        let part = self.part(&owner);
        let before = self.parts.get_mut(part)?.insert(owner, value);
        if before.is_none() {
            self.len += 1;
            if self.len > self.parts.len() * MOST {
                self.split();
            }
        }
        before
    }

    /// Takes an owner out.
    pub fn remove(&mut self, owner: &[u8]) -> Option<V> {
        let number = self.part(owner);
        let part = self.parts.get_mut(number)?;
        let value = part.remove(owner)?;
        if part.capacity() > MOST && part.capacity() / 8 > part.len() {
            part.shrink_to(part.len() * 2);
        }
        self.len -= 1;
        if self.parts.len() > 1 && self.len < self.parts.len() * LEAST {
            self.join();
        }
        Some(value)
    }

    fn part(&self, owner: &[u8]) -> usize {
        match self.parts.as_slice() {
            [first, _, ..] => part_of(first.hasher().hash_one(owner), self.parts.len()),
            _ => 0,
        }
    }

    /// One part more: it takes over the entries of its origin that belong to it from now on.
    fn split(&mut self) {
        let parts = self.parts.len() + 1;
        let (origin, new) = (origin_of_last(parts), parts - 1);
        let Some(hasher) = self.parts.first().map(HashMap::hasher) else {
            return;
        };
        let is_new = |owner: &Owner| part_of(hasher.hash_one(&**owner), parts) == new;
        let moved: Vec<Owner> = self
            .parts
            .get(origin)
            .into_iter()
            .flat_map(HashMap::keys)
            .filter(|owner| is_new(owner))
            .cloned()
            .collect();
        let mut taken = HashMap::with_capacity_and_hasher(moved.len() * 2, S::default());
        if let Some(origin) = self.parts.get_mut(origin) {
            taken.extend(
                moved
                    .iter()
                    .filter_map(|owner| origin.remove_entry(&**owner)),
            );
        }
        self.parts.push(taken);
    }

    /// One part less: its origin takes its entries back.
    fn join(&mut self) {
        let origin = origin_of_last(self.parts.len());
        let last = self.parts.pop();
        if let Some(origin) = self.parts.get_mut(origin) {
            origin.extend(last.into_iter().flatten());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::RandomState;

    use proptest::prelude::*;

    use super::*;

    fn owner(name: u32) -> Owner {
        Owner::from(name.to_be_bytes())
    }

    type Map = OwnerMap<u32, RandomState>;

    /// Every entry is in the part that its hash names, and no part is much greater than the others.
    fn check(map: &Map, oracle: &HashMap<u32, u32>) {
        assert_eq!(map.len(), oracle.len());
        assert_eq!(map.is_empty(), oracle.is_empty());
        let sizes: Vec<usize> = map.parts.iter().map(HashMap::len).collect();
        assert_eq!(sizes.iter().sum::<usize>(), oracle.len());
        assert!(sizes.iter().all(|size| *size < 3 * MOST), "{sizes:?}");
        for (name, value) in oracle {
            assert_eq!(map.get(&owner(*name)), Some(value));
        }
    }

    #[test]
    fn it_grows_and_shrinks_by_parts_and_loses_nothing() {
        const MANY: u32 = 60_000;
        let (mut map, mut oracle) = (Map::default(), HashMap::new());
        for name in 0..MANY {
            assert_eq!(map.insert(owner(name), name), None);
            oracle.insert(name, name);
            if name % 9973 == 0 {
                check(&map, &oracle);
            }
        }
        check(&map, &oracle);
        assert_eq!(map.parts.len(), MANY as usize / MOST + 1);
        for name in 0..MANY {
            assert_eq!(map.remove(&owner(name)), oracle.remove(&name));
            assert_eq!(map.get(&owner(name)), None);
            if name % 9973 == 0 {
                check(&map, &oracle);
            }
        }
        check(&map, &oracle);
        assert_eq!(map.parts.len(), 1);
        assert!(map.parts[0].capacity() <= 2 * MOST, "memory is given back");
    }

    #[test]
    fn a_new_part_takes_from_its_origin_only() {
        for parts in 2..40 {
            for hash in (0..5000u64).map(|bits| bits << 32) {
                let (before, after) = (part_of(hash, parts - 1), part_of(hash, parts));
                assert!(after < parts);
                let stays = after == before;
                assert!(stays || (after == parts - 1 && before == origin_of_last(parts)));
            }
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_standard_map(steps in prop::collection::vec((any::<bool>(), 0u32..50), 0..300)) {
            let (mut map, mut oracle) = (Map::default(), HashMap::new());
            for (number, (comes, name)) in (0u32..).zip(steps) {
                if comes {
                    prop_assert_eq!(map.insert(owner(name), number), oracle.insert(name, number));
                } else {
                    prop_assert_eq!(map.remove(&owner(name)), oracle.remove(&name));
                }
                check(&map, &oracle);
            }
        }
    }
}
