//! The lock's state in Redis's keys: Redisson's layout, byte for byte.
//!
//! | what | key | type |
//! |---|---|---|
//! | lock | `K` | hash: owner → hold count, and the token in a field without a name; its expiry is the lease |
//! | queue | `redisson_lock_queue:{K}` | list of owners, head first |
//! | deadlines | `redisson_lock_timeout:{K}` | sorted set: owner → ms timestamp |
//! | token | `fairlock_token:{K}` | string: the last fencing token, while it is ahead of the clock |
//!
//! [`names`] derives the names, [`write`] changes one key at a time and says so to replicas,
//! WATCH and subscribers, [`open_lock`] puts both together as the [`crate::lock::State`] of a lock,
//! [`repair`] mends what foreign writers left, and [`view`] reads without changing anything.

pub mod names;
mod repair;
pub mod open_lock;
pub mod view;
pub mod write;

pub use names::Names;
pub use open_lock::{Tracked, QueueView, OpenLock, Taken};
