//! Locks that only Redisson's scripts work on, as Lua.
//!
//! Their queue, scores and messages are left to the scripts, as on a server without the module. The module adds
//! one thing: if such a lock becomes free and no script publishes the head's wake-up (the lease ends, the key
//! is deleted), it wakes the head once. For that it looks at the keys, without walking the queue.
//!
//! It looks at once where a lock may have become free without a wake-up. A hand-off from script to script only
//! notes that the keys have changed, and they are looked at a few milliseconds later, once for many hand-offs.
//!
//! It also has the scores of more than a few waiters converted (see [`crate::keyspace::wide`]), which the scripts
//! change one by one in each hand-off.
//!
//! A lock is watched from the first event of its queue on, until a FAIRLOCK command or an intercepted script
//! concerns it. From then on the rules look after it, until only waiters of scripts are left.

use redis_module::NotifyEvent;

use crate::keyspace::held::is_redissons;
use crate::keyspace::wide::widen_deadlines;
use crate::keyspace::{Names, names};
use crate::lock::Owner;
use crate::server::{Access, Ctx};

use super::conditions;
use super::effects::publish_wake_up;
use super::id::LockId;
use super::state::{notes, table};
use super::step::set_timer;
use super::table::{Change, Watch};

/// Milliseconds until a lock that has changed is looked at. Short, because the new holder's lease, which nobody has
/// looked at, may end meanwhile.
const SOON: u64 = 5;

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
    let waiting = queue.len();
    if waiting == 0 {
        forget(lock);
        return;
    }
    let before = table(|table| table.watch_of(lock)).unwrap_or_default();
    let mut woken = None;
    if key.is_empty()
        && let Some(head) = queue.list_get(0)
    {
        wake_once(ctx, &before, &names, head.as_slice());
        woken = Some(Owner::from(head.as_slice()));
    }
    let ends = key.expires_at();
    let is_wide = before.is_wide || widen_deadlines(ctx, &names, waiting);
    let watch = Watch::new(woken, waiting, is_wide);
    table(|table| table.watch(lock, watch, ends, now));
    set_timer(ctx, now);
}

/// The queue or the scores of a lock were changed from outside the module. False if the lock is not only watched, or if
/// the change is not one that scripts make, so that the keys are to be looked at when the iteration ends.
pub fn queue_changes(ctx: &Ctx, class: NotifyEvent, event: &[u8], key: &[u8]) -> bool {
    let change = match event {
        b"rpush" => Change::BehindHead,
        b"lpop" => Change::Head,
        // A list or a sorted set that has become empty is deleted.
        b"del" => Change::Deleted,
        _ if class == NotifyEvent::ZSET => Change::BehindHead,
        _ => return false,
    };
    names::locks_of(key).is_some_and(|locks| changes(ctx, locks, change))
}

/// The lock with this key, if it is one, has another lease. False if it is not only watched.
pub fn lease_changes(ctx: &Ctx, key: &[u8]) -> bool {
    changes(ctx, [Some(key), None], Change::BehindHead)
}

/// One of these locks has changed. False if it is not only watched.
fn changes(ctx: &Ctx, locks: [Option<&[u8]>; 2], change: Change) -> bool {
    let lock = table(|table| table.only_watched(ctx.db(), locks));
    if let Some(lock) = &lock {
        look_soon(ctx, lock, change);
    }
    lock.is_some()
}

/// The hash of a lock that is watched has changed. A script that has woken a waiter in this iteration has released
/// the lock, so that there is no wake-up to add. The lock may have a new holder by now.
pub fn lock_changes(ctx: &Ctx, lock: &LockId) {
    let woken = notes(|notes| notes.woken_of(&lock.name));
    match woken.filter(|_| ctx.select_db(lock.db)) {
        Some(head) if is_free(ctx, lock) => look_soon(ctx, lock, Change::Woken(head)),
        Some(_) => look_soon(ctx, lock, Change::Head),
        None => look(ctx, lock),
    }
}

fn is_free(ctx: &Ctx, lock: &LockId) -> bool {
    let names = Names::of(&lock.name);
    ctx.open(&names.lock, Access::Read).is_empty()
}

/// Looks at a lock within [`SOON`].
fn look_soon(ctx: &Ctx, lock: &LockId, change: Change) {
    if table(|table| table.change_watched(lock, change)) {
        let now = conditions::now();
        table(|table| table.postpone(lock, now.tick_after(SOON)));
        set_timer(ctx, now);
    }
}

/// The lock is free: its head is woken, unless it has been since the lock became free.
fn wake_once(ctx: &Ctx, before: &Watch, names: &Names, head: &[u8]) {
    let is_woken = before.woken.as_ref().is_some_and(|woken| **woken == *head);
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
