//! Whether a key that a walk over the keyspace has met is a lock that is held.
//!
//! A command is told which key is a lock. A walk is not, and a hash with one field and a number in it can be
//! anybody's counter. So only what looks like a lock on its own is one here: a hash with a fencing token, which the
//! module writes, or with a holder that is named as Redisson names its own. What FAIRLOCK.ACQUIRE would refuse
//! with NOTALOCK is none.

use crate::server::{Access, Ctx, Key, Kind, string};

use super::Names;
use super::open_lock::{hold_count, token_of};

/// Whether the key of this name is a lock that is held. Does not count as a use of the key.
pub fn is_held_lock(ctx: &Ctx, name: &[u8]) -> bool {
    let key = string(name);
    let lock = ctx.open(&key, Access::Glance);
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
    let shared = ctx.open(names.shared(), Access::Glance);
    shared.kind() == Kind::Hash
}

/// Whether another client has taken holders out of the hash of a lock that this server looks after: only the token is
/// left, or of a SHARED lock not as many holders as are `shared`. Does not count as a use of the key.
pub fn has_lost_holders(ctx: &Ctx, name: &[u8], shared: Option<usize>) -> bool {
    let key = string(name);
    let lock = ctx.open(&key, Access::Glance);
    match shared {
        _ if lock.kind() != Kind::Hash => false,
        Some(holders) => lock.len() != holders.saturating_add(1),
        None => lock.len() == 1 && token_of(&lock).is_some(),
    }
}

/// Whether an owner is named as Redisson names them: a UUID, a colon, and the number of a thread.
pub fn is_redissons(owner: &[u8]) -> bool {
    let Some((uuid, [b':', thread @ ..])) = owner.split_at_checked(36) else {
        return false;
    };
    !thread.is_empty() && thread.iter().all(u8::is_ascii_digit) && is_uuid(uuid)
}

fn is_uuid(text: &[u8]) -> bool {
    text.iter().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => *byte == b'-',
        // Redisson's UUIDs have version 4. Those that `*` stands for do not (see `command::args`).
        14 => *byte == b'4',
        _ => byte.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::is_redissons;

    #[test]
    fn owners_of_redissons_are_told_by_their_names() {
        assert!(is_redissons(b"0a1b2c3d-0000-4000-8000-00000000000f:42"));
        for other in [
            &b"0a1b2c3d-0000-4000-8000-00000000000f:"[..],
            b"0a1b2c3d-0000-4000-8000-00000000000f:4x",
            b"0a1b2c3d-0000-4000-8000-00000000000f",
            b"0a1b2c3d+0000-4000-8000-00000000000f:1",
            b"0a1b2c3d-0000-8000-8000-00000000000f:42",
            b"worker-1:7",
            b"",
        ] {
            assert!(!is_redissons(other), "{}", other.escape_ascii());
        }
    }
}
