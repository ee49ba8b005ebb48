//! Locks that only Redisson's scripts work on, as Lua.
//!
//! Their queue, scores and messages are left to the scripts, as on a server without the module. The module adds
//! one thing: if such a lock becomes free and no script publishes the head's wake-up (the lease ends, the key
//! is deleted), it wakes the head once. For that it looks at the keys, without walking the queue.
//!
//! A lock is watched from the first event of its queue on, until a FAIRLOCK command or an intercepted script
//! concerns it. From then on the rules look after it, until only waiters of scripts are left.

use crate::keyspace::Names;
use crate::keyspace::held::is_redissons;
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
