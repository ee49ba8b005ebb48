//! Locks that only Redisson's scripts work on, as Lua.
//!
//! Their queue, scores and messages are left to the scripts, as on a server without the module. The module adds
//! one thing: if such a lock becomes free and no script publishes the head's wake-up (the lease ends, the key
//! is deleted), it wakes the head once. For that it looks at the keys, without walking the queue.
//!
//! A lock is watched from the first event of its queue on, until a FAIRLOCK command or an intercepted script
//! concerns it. From then on the rules look after it, until only waiters of scripts are left.

use crate::keyspace::Names;
use crate::lock::Owner;
use crate::server::{Access, Ctx};

use super::conditions;
use super::effects::publish_wake_up;
use super::id::LockId;
use super::state::{notes, table};
use super::step::set_timer;
use super::table::Watch;

/// Looks at a lock that is watched, or is to be.
pub fn look(ctx: &Ctx, lock: &LockId) {
    if !ctx.select_db(lock.db) {
        return;
    }
    let now = conditions::now();
    let names = Names::of(&lock.name);
    let (key, mut queue) = (
        ctx.open(&names.lock, Access::Read),
        ctx.open(&names.queue, Access::Read),
    );
    let mut watch = Watch {
        woken: None,
        waiting: queue.len(),
    };
    if watch.waiting == 0 {
        forget(lock);
        return;
    }
    if key.is_empty()
        && let Some(head) = queue.list_get(0)
    {
        wake_once(ctx, lock, &names, head.as_slice());
        watch.woken = Some(Owner::from(head.as_slice()));
    }
    let ends = key.expires_at();
    table(|table| table.watch(lock, watch, ends, now));
    set_timer(ctx, now);
}

/// The lock is free: its head is woken, unless it has been since the lock became free.
fn wake_once(ctx: &Ctx, lock: &LockId, names: &Names, head: &[u8]) {
    let before = table(|table| table.watch_of(lock));
    let woken = before.and_then(|before| before.woken);
    let is_woken = woken.is_some_and(|woken| *woken == *head);
    let channel = names.channel(head);
    let is_published = || notes(|notes| notes.is_published(channel.as_slice()));
    if !is_woken && !is_published() && !ctx.flags().replica() {
        publish_wake_up(ctx, &channel);
    }
}

/// A lock that is watched has no queue any more.
pub fn forget(lock: &LockId) {
    table(|table| {
        if table.is_watched(lock) {
            table.forget(lock.db, &lock.name);
        }
    });
}

/// Whether fairlock's own waiters may be in a queue that was there before the module, or before a restart:
/// one of them is not named as Redisson names its own. Walks the queue.
pub fn may_be_ours(ctx: &Ctx, lock: &LockId) -> bool {
    if !ctx.select_db(lock.db) {
        return false;
    }
    let names = Names::of(&lock.name);
    let mut queue = ctx.open(&names.queue, Access::Read);
    (0..queue.len())
        .map_while(|index| queue.list_get(index))
        .any(|owner| !is_redissons(owner.as_slice()))
}

/// Whether an owner's name has the form of Redisson's: a UUID, a colon, and the number of a thread.
fn is_redissons(owner: &[u8]) -> bool {
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
