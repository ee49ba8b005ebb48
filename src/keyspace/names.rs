//! Names of the keys and channels of a lock, and of owners.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crc::{CRC_16_XMODEM, Crc};
use foldhash::fast::RandomState;

use crate::server::{Str, string};

/// How many locks' names are cached. A lock is usually released shortly after it was acquired.
const CACHED: usize = 512;

/// Longer names are not cached: they are not worth their memory.
const LONGEST_CACHED: usize = 200;

thread_local! {
    static CACHE: RefCell<HashMap<Box<[u8]>, Rc<Names>, RandomState>> = RefCell::default();
}

/// The names of a lock's keys.
pub struct Names {
    /// The bytes of `lock`, without a call of the server.
    name: Box<[u8]>,
    pub lock: Str,
    pub queue: Str,
    pub deadlines: Str,
    /// The last fencing token, where it is ahead of the clock.
    pub token: Str,
    pub shared: Str,
}

impl Names {
    /// The names that belong to a lock's key. To make them anew in each step would cost a sixth of a pair.
    pub fn of(key: &[u8]) -> Rc<Self> {
        if key.len() > LONGEST_CACHED {
            return Rc::new(Self::made(key));
        }
        CACHE.with_borrow_mut(|known| {
            if let Some(names) = known.get(key) {
                return Rc::clone(names);
            }
            if known.len() == CACHED {
                known.clear();
            }
            let names = Rc::new(Self::made(key));
            known.insert(Box::from(key), Rc::clone(&names));
            names
        })
    }

    fn made(key: &[u8]) -> Self {
        Self {
            name: Box::from(key),
            lock: string(key),
            queue: string(&derived("redisson_lock_queue", key)),
            deadlines: string(&derived("redisson_lock_timeout", key)),
            token: string(&derived("fairlock_token", key)),
            shared: string(&derived("redisson_lock_shared", key)),
        }
    }

    pub fn slot(&self) -> u16 {
        slot(&self.name)
    }

    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What the names of the channels begin with on which waiters of this lock are woken; a colon and the owner follow.
    pub fn channels(&self) -> Vec<u8> {
        derived("redisson_lock__channel", &self.name)
    }

    /// Whether a key is named as those that keep the reply to an unlock of this lock.
    pub fn is_latch(&self, key: &[u8]) -> bool {
        let rest = key.strip_prefix(derived("redisson_unlock_latch", &self.name).as_slice());
        rest.is_some_and(|rest| rest.starts_with(b":"))
    }

    pub fn channel(&self, owner: &[u8]) -> Str {
        string(&[&self.channels()[..], b":", owner].concat())
    }
}

/// Redisson's rule: the key goes in braces so that a cluster puts all keys of the lock in one
/// slot, unless it has an opening brace itself.
fn derived(prefix: &str, key: &[u8]) -> Vec<u8> {
    let braces = !key.contains(&b'{');
    let mut name = Vec::with_capacity(prefix.len() + key.len() + 3);
    name.extend_from_slice(prefix.as_bytes());
    name.push(b':');
    if braces {
        name.push(b'{');
    }
    name.extend_from_slice(key);
    if braces {
        name.push(b'}');
    }
    name
}

/// The name inside a pair of braces that has no other opening brace in it.
pub fn unbraced(name: &[u8]) -> Option<&[u8]> {
    let inner = name.strip_prefix(b"{")?.strip_suffix(b"}")?;
    (!inner.contains(&b'{')).then_some(inner)
}

/// The other lock that has the same queue, deadlines, token and channels. By Redisson's rule for names these
/// are the same for `a` and `{a}`.
pub fn twin(name: &[u8]) -> Option<Vec<u8>> {
    match unbraced(name) {
        Some(inner) => Some(inner.to_vec()),
        None if name.contains(&b'{') => None,
        None => Some([b"{", name, b"}"].concat()),
    }
}

/// Whether a key is the token of some lock, kept while it is ahead of the clock.
pub fn is_token(key: &[u8]) -> bool {
    key.starts_with(b"fairlock_token:")
}

/// For the name of a queue, of deadlines or of shared holders: the part after the prefix, which is the same for
/// all three of a lock. `None` for any other key.
pub fn queue_of(key: &[u8]) -> Option<&[u8]> {
    let rest = key.strip_prefix(b"redisson_lock_")?;
    rest.strip_prefix(b"queue:")
        .or_else(|| rest.strip_prefix(b"timeout:"))
        .or_else(|| rest.strip_prefix(b"shared:"))
}

/// The locks to which a queue, deadlines or shared holders may belong, by the key's name: the lock whose name
/// was put in braces, and the lock whose name has braces of its own. `None` for any other key.
pub fn locks_of(key: &[u8]) -> Option<[Option<&[u8]>; 2]> {
    let name = queue_of(key)?;
    Some([unbraced(name), name.contains(&b'{').then_some(name)])
}

/// The part of a key that a cluster hashes: what is between the first `{` and the next `}`, or
/// everything where that is empty or missing.
fn hashed(key: &[u8]) -> &[u8] {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    };
    tag().unwrap_or(key)
}

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

pub const SLOTS: u16 = 16_384;

pub fn slot(key: &[u8]) -> u16 {
    CRC.checksum(hashed(key)) % SLOTS
}

/// Whether a cluster keeps all keys of this lock in one slot. Compares the parts of the names that are hashed,
/// and not the slots, which could be equal by accident.
pub fn one_slot(key: &[u8]) -> bool {
    hashed(&derived("redisson_lock_queue", key)) == hashed(key)
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
    use super::*;

    #[test]
    fn names_follow_redissons_rule() {
        assert_eq!(derived("p", b"orders"), b"p:{orders}");
        assert_eq!(derived("p", b"shop{7}:x"), b"p:shop{7}:x");
        assert_eq!(derived("p", b""), b"p:{}");
        assert_eq!(derived("p", b"\xff\x00"), b"p:{\xff\x00}");
    }

    #[test]
    fn a_queue_leads_back_to_its_lock() {
        for key in [
            &b"orders"[..],
            b"shop{7}:x",
            b"{a}",
            b"a{b",
            b"",
            b"\xff\x00",
            b"a}b",
        ] {
            for prefix in [
                "redisson_lock_queue",
                "redisson_lock_timeout",
                "redisson_lock_shared",
            ] {
                let name = derived(prefix, key);
                let [plain, braced] = locks_of(&name).expect("a lock's key");
                let found = plain == Some(key) || braced == Some(key);
                assert!(found, "{}", name.escape_ascii());
            }
        }
        assert_eq!(locks_of(b"fairlock_token:{a}"), None);
        assert_eq!(locks_of(b"orders"), None);
        assert_eq!(locks_of(b"redisson_lock_queue:a"), Some([None, None]));
    }

    #[test]
    fn twins_have_the_same_keys_and_nobody_else_has() {
        for (name, expected) in [
            (&b"a"[..], Some(&b"{a}"[..])),
            (b"", Some(b"{}")),
            (b"a}b", Some(b"{a}b}")),
            (b"{a}b", None),
            (b"a{b}", None),
            (b"{a{b}", None),
            (b"{", None),
        ] {
            let other = twin(name);
            assert_eq!(other.as_deref(), expected, "{}", name.escape_ascii());
            if let Some(other) = other {
                assert_eq!(derived("p", &other), derived("p", name));
                assert_eq!(twin(&other).as_deref(), Some(name));
            }
        }
    }

    #[test]
    fn slots_are_numbered_as_the_server_does() {
        // By CLUSTER KEYSLOT.
        for (key, expected) in [
            (&b"orders"[..], 105),
            (b"redisson_lock_queue:{orders}", 105),
            (b"shop{7}:x", 1716),
            (b"a", 15_495),
            (b"", 0),
        ] {
            assert_eq!(slot(key), expected, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn a_cluster_takes_names_whose_keys_share_a_slot() {
        for key in [&b"orders"[..], b"shop{7}:x", b"{a}", b"{a}{b", b"a{b}c}"] {
            assert!(one_slot(key), "{}", key.escape_ascii());
        }
    }

    #[test]
    fn a_cluster_refuses_names_whose_keys_would_be_elsewhere() {
        for key in [&b"a{b"[..], b"{}x", b"a}b", b"x{}y", b"", b"}"] {
            assert!(!one_slot(key), "{}", key.escape_ascii());
        }
    }

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
