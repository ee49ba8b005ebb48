//! Giving memory back after a crowd has left. Knows only collections of the standard library.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Whether so few entries are left of a crowd that its memory is worth giving back.
pub fn is_too_roomy(capacity: usize, len: usize) -> bool {
    capacity > 1024 && capacity / 8 > len
}

/// Gives memory back after a crowd has left.
pub fn give_back<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if is_too_roomy(map.capacity(), map.len()) {
        map.shrink_to(map.len() * 2);
    }
}
