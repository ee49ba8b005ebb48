//! Panics that tests provoke, to see what becomes of clients and queues. Nothing of it is in a release
//! build.

/// Panics if the owner of a step is named after this point of it.
#[cfg(debug_assertions)]
#[expect(clippy::panic, reason = "that is what it is for")]
pub fn point(point: &str, owner: &[u8]) {
    if owner.strip_prefix(b"fairlock-test-panics:") == Some(point.as_bytes()) {
        panic!("as a test wants it, {point}")
    }
}

/// Nothing happens.
#[cfg(not(debug_assertions))]
#[inline]
pub fn point(_point: &str, _owner: &[u8]) {}
