//! Panics that tests provoke, to check that clients and queues survive them. A release build has none of
//! this.

/// Panics if the owner of a step is named after this point of it.
#[cfg(debug_assertions)]
pub fn point(point: &str, owner: &[u8]) {
    let named = owner.strip_prefix(b"fairlock-test-panics:");
    assert_ne!(
        named,
        Some(point.as_bytes()),
        "a test has asked for this panic"
    );
}

#[cfg(not(debug_assertions))]
#[inline]
pub fn point(_point: &str, _owner: &[u8]) {}
