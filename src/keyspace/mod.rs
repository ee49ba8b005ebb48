//! The lock's state in Redis's keys: Redisson's layout, byte for byte, and one key more for locks with several holders.
//!
//! | what | key | type |
//! |---|---|---|
//! | lock | `K` | hash: owner → hold count, and the token in a field without a name; its expiry is the lease |
//! | queue | `redisson_lock_queue:{K}` | list of owners, head first |
//! | deadlines | `redisson_lock_timeout:{K}` | sorted set: owner → ms timestamp |
//! | token | `fairlock_token:{K}` | string: the last fencing token, while it is ahead of the clock |
//! | shared holders | `redisson_lock_shared:{K}` | hash, while the lock is held SHARED: owner → lease end, limit, token |
//!
//! [`names`] derives the names, [`write`] changes one key at a time and says so to replicas,
//! WATCH and subscribers, [`number`](mod@number) reads numbers. [`open_lock`] opens a lock's keys for one step, together
//! with what this server [tracks](tracked) of it; [`lock_state`] makes that the [`crate::lock::State`] of the lock,
//! [`shared`] adds the holders of a SHARED lock, [`repair`] repairs the queue after changes from outside the
//! module, [`view`] reads without changing anything, and [`held`] tells a lock from
//! any other key.

pub mod held;
mod lock_state;
pub mod names;
pub mod number;
pub mod open_lock;
mod repair;
mod shared;
pub mod tracked;
pub mod view;
pub mod write;

pub use held::is_held_lock;
pub use names::Names;
pub use open_lock::OpenLock;
pub use tracked::{QueueView, Taken, Tracked};
