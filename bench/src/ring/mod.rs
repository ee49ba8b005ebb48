//! One lock, many clients, no pause: each client releases the lock as soon as it has it, and asks again. So there is
//! always one holder, and all other clients wait.
//!
//! - [`blocking`]: the server blocks the client until it has the lock, or a token of a list;
//! - [`waiting`]: the client asks, waits for a message, and asks again;
//! - [`retrying`]: the client asks again and again;
//! - [`gather`]: brings the clients together until all but the holder wait.

pub mod blocking;
pub mod gather;
pub mod retrying;
pub mod waiting;

/// The lock, or the list.
const KEY: &str = "ring";
/// Longer than any scene, so that no lease ends within one.
const LEASE: &[u8] = b"600000";
