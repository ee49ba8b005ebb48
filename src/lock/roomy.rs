//! When a collection gives memory back.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Whether so few entries are left of a crowd that its memory is worth giving back.
pub fn is_too_roomy(capacity: usize, len: usize) -> bool {
    capacity > 1024 && capacity / 8 > len
}

/// The capacity of a map that never had more than a few entries.
const LEAST: usize = 3;

/// Gives memory back after a crowd has left.
pub fn give_back<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    // Places of removed entries may be missing from the capacity of a large map, until it is full.
    let is_left = map.is_empty() && map.capacity() != LEAST;
    if is_left || is_too_roomy(map.capacity(), map.len()) {
        map.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_when_less_than_an_eighth_of_a_crowd_is_left() {
        assert!(is_too_roomy(1032, 128) && !is_too_roomy(1032, 129) && !is_too_roomy(1024, 0));
    }

    /// Else each one that leaves would cost as much as all that stay.
    #[test]
    fn a_map_that_is_no_crowd_keeps_its_memory() {
        let mut map = HashMap::with_capacity(100);
        map.insert(1, 1);
        let before = map.capacity();
        give_back(&mut map);
        assert_eq!(map.capacity(), before);
    }

    #[test]
    fn a_map_that_is_empty_keeps_no_memory_of_a_crowd_that_came_and_went() {
        for crowd in (2000..4000).step_by(100) {
            let mut map = HashMap::new();
            for name in 0..10 * crowd {
                map.insert(name, name);
                if name >= crowd {
                    map.remove(&(name - crowd));
                }
            }
            for name in 9 * crowd..10 * crowd {
                map.remove(&name);
                give_back(&mut map);
            }
            assert_eq!(map.capacity(), 0, "{crowd}");
        }
    }
}
