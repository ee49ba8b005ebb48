//! Whether a key that a walk over the keyspace has met is a lock that is held.
//!
//! A command is told which key is a lock. A walk is not, and a hash with one field and a number in it can be
//! anybody's counter. So only what looks like a lock on its own is one here: a hash with a fencing token, which the
//! module writes, or with a holder that is named as Redisson names its own. What FAIRLOCK.ACQUIRE would refuse
//! with NOTALOCK is none.

use crate::server::{Access, Ctx, Key, Kind, string};

use super::fields::{hold_count, token_of};
use super::names::{Names, is_redissons};

/// Whether the key of this name is a lock that is held. Does not count as a use of the key.
pub fn is_held_lock(ctx: &Ctx, name: &[u8]) -> bool {
    let key = string(name);
    let lock = ctx.open(&key, Access::Read);
    if lock.kind() != Kind::Hash {
        return false;
    }
    match lock.len() {
        0 => false,
        1 => one_holder(&lock).is_some_and(|owner| is_redissons(&owner)),
        2 => token_of(&lock).is_some() && one_holder(&lock).is_some(),
        _ => token_of(&lock).is_some() && has_shared_holders(ctx, name),
    }
}

/// The owner in a lock's hash that has only one.
fn one_holder(lock: &Key<'_>) -> Option<Vec<u8>> {
    let (owner, holds) = lock.hash_named()?;
    hold_count(&holds).map(|_| owner)
}

fn has_shared_holders(ctx: &Ctx, name: &[u8]) -> bool {
    let names = Names::of(name);
    let shared = ctx.open(&names.shared, Access::Read);
    shared.kind() == Kind::Hash
}
