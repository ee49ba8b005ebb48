//! Steps on a lock in memory, with the promises that the tests of the rules hold it to.

use crate::lock::random::{Draw, take};

/// Takes the steps that the bytes encode.
pub fn check(data: &[u8]) {
    let draws = data.chunks_exact(size_of::<Draw>());
    if let Err(broken) = take(draws.filter_map(|draw| draw.try_into().ok())) {
        panic!("{broken}");
    }
}
