//! The lock's state in Redis's keys: Redisson's layout, byte for byte, and one key more for locks with several
//! holders.
//!
//! | what | key | type |
//! |---|---|---|
//! | lock | `K` | hash: owner → hold count, and the token in a field without a name; its expiry is the lease |
//! | queue | `redisson_lock_queue:{K}` | list of owners, head first |
//! | deadlines | `redisson_lock_timeout:{K}` | sorted set: owner → ms timestamp |
//! | token | `fairlock_token:{K}` | string: the last fencing token, while it is ahead of the clock |
//! | shared holders | `redisson_lock_shared:{K}` | hash, only while held SHARED: owner → lease end, limit, token |
//!
//! The map, from top to bottom: a file imports only from those below it (`make check`).
//!
//! Reading without a step:
//! - [`view`]: what the commands show of a lock.
//!
//! One step:
//! - [`lock_state`]: makes an open lock the [`crate::lock::State`] that the rules work on;
//! - [`detect`]: detects changes from outside the module;
//! - [`repair`]: repairs the queue after them;
//! - [`shared`]: the holders of a SHARED lock;
//! - [`wide`]: has the server keep keys with many elements so that one is found without a walk;
//! - [`open_lock`]: opens a lock's keys for one step, together with what is tracked.
//!
//! What these rest on:
//! - [`tracked`]: what this server knows of a lock beyond its keys;
//! - [`write`](mod@write): changes one key at a time, and reports the change to replicas, WATCH and subscribers;
//! - [`fields`]: what is written of a holder;
//! - [`names`]: derives the names of keys and channels;
//! - [`number`](mod@number): reads numbers from keys.
//!
//! To add an option that is stored with a hold, say `TAG text`, that INFO shows. In the keys the text may stand behind
//! what is there already, never in a field of its own: each further field of the lock's hash is an owner to Redisson,
//! and makes the hash something else than a lock to this module. For an exclusive holder that is the field without a
//! name, behind the token and a blank (`admit`; `exclusive` and `read_token` in [`fields`]). Write the blank only
//! with a text: a release that does not know the option finds no token there, and the scripts in `clients/lua` no
//! lock, until they know it, too. For a shared holder it is the end of its entry (`entry`, `read_entry`), which may
//! contain blanks then. Besides [`fields`]: a field of `lock::Terms`, which take it from the request over the queue to
//! the hold, and to what [`view`] reads; `command/args.rs` and `command/acquire.rs` parse it, `command/info.rs`
//! replies it. `Terms` are `Copy`, so the text has a greatest length; while its owner waits it is in no key, and lost
//! in a restart. A holder that asks again keeps the terms that it has, unless `hold_again` says otherwise.

mod detect;
pub mod fields;
mod lock_state;
pub mod names;
pub mod number;
pub mod open_lock;
mod repair;
mod shared;
pub mod tracked;
pub mod view;
pub mod wide;
pub mod write;

pub use names::Names;
pub use open_lock::OpenLock;
pub use tracked::{QueueView, Taken, Tracked};
