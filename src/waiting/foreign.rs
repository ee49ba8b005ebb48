//! Changes from outside the module: to a lock's keys, to whole databases, to the server's role.
//!
//! A key event can come in the middle of anything, and the server forbids writing in it (before
//! 7.2). So only the lock's name is noted, and the lock is looked at when the iteration of the
//! event loop ends, before any reply is written. The keys as they are then decide, not the
//! event: several commands may have run since.
//!
//! The module knows a lock from the first event of its queue on, so queues that scripts made are served like
//! any other. A replica only notes which locks have a queue; when it becomes the master it looks at all of them.

use redis_module::NotifyEvent;

use crate::keyspace::number::number;
use crate::keyspace::{Names, names};
use crate::server::{Access, Ctx, string};

use super::arriving::Arriving;
use super::conditions::{self, go_ahead_of_the_clock, grant_grace, learn};
use super::deferred::Notes;
use super::frozen::Frozen;
use super::id::LockId;
use super::sent_away;
use super::session::Sessions;
use super::state::{arriving, followed, frozen, note, notes, sessions, stats, table, waiting};
use super::stats::Stats;
use super::touch::Touch;
use super::watch;

/// The server reports that a key was changed from outside the module.
pub fn key_changes(ctx: &Ctx, class: NotifyEvent, event: &[u8], key: &[u8]) {
    if class == NotifyEvent::EXPIRED {
        stats(|stats| stats.expired(ctx.db(), key));
        if waiting(|waiting| waiting.stepping.get()) {
            // The step that is running has seen the expiry, and handles it.
            return;
        }
    }
    if names::queue_of(key).is_some() {
        // Commands from the append-only file raise the same events as commands of clients.
        let loading = !waiting(|waiting| waiting.begun.get());
        let touch = if loading || class == NotifyEvent::LOADED {
            Touch::LOADED
        } else if watch::queue_changes(ctx, class, event, key) {
            return;
        } else {
            Touch::QUEUE
        };
        note(|notes| notes.touch_queue_key(ctx.db(), key, touch));
        return;
    }
    if names::is_token(key) {
        learn(
            ctx.open(&string(key), Access::Read)
                .read(number)
                .flatten()
                .unwrap_or(0),
        );
        return;
    }
    if NotifyEvent::GENERIC
        .union(NotifyEvent::EVICTED)
        .union(NotifyEvent::EXPIRED)
        .contains(class)
    {
        lock_changes(ctx, event, key);
    }
}

/// A key that may be a lock's was deleted, replaced or given another lease.
fn lock_changes(ctx: &Ctx, event: &[u8], key: &[u8]) {
    let db = ctx.db();
    let is_lease = event == b"expire";
    if !is_lease {
        stats(|stats| stats.taken_away(db, key));
    }
    let is_known = table(|table| table.contains(db, key));
    if is_known && !(is_lease && watch::lease_changes(ctx, key)) {
        note(|notes| notes.touch(LockId::new(db, key), Touch::LOCK));
    }
}

/// On a replica: notes which of the locks whose keys were touched have a queue.
pub fn follow(ctx: &Ctx, touched: impl IntoIterator<Item = (LockId, Touch)>) {
    for (lock, _) in touched {
        let queued = is_ours_to_track(ctx, &lock);
        followed(|followed| {
            if queued {
                followed.insert(lock);
            } else {
                followed.remove(&lock);
            }
        });
    }
}

/// Whether a lock has waiters or shared holders, as the keys say.
#[must_use]
pub fn is_ours_to_track(ctx: &Ctx, lock: &LockId) -> bool {
    let names = Names::of(&lock.name);
    let is_there = |key| !ctx.open(key, Access::Read).is_empty();
    ctx.select_db(lock.db)
        && (is_there(&names.queue) || is_there(&names.deadlines) || is_there(names.shared()))
}

/// Whether several may hold a lock together, as the keys say.
#[must_use]
pub fn has_shared_holders(ctx: &Ctx, lock: &LockId) -> bool {
    let names = Names::of(&lock.name);
    ctx.select_db(lock.db) && !ctx.open(names.shared(), Access::Read).is_empty()
}

/// Whether a queue that is not tracked is this lock's. By Redisson's rule for names `a` and `{a}` share a queue
/// key: a queue that is not tracked belongs to `a`, unless only `{a}` is held.
#[must_use]
pub fn is_meant(ctx: &Ctx, lock: &LockId) -> bool {
    let is_held = |name: &[u8]| !ctx.open(&string(name), Access::Read).is_empty();
    let is_tracked = |name: &[u8]| table(|table| table.contains(lock.db, name));
    let name = &*lock.name;
    if let Some(inner) = names::unbraced(name) {
        return !is_twin_tracked(lock) && is_held(name) && !is_held(inner);
    }
    if name.contains(&b'{') {
        return true;
    }
    let braced = [b"{", name, b"}"].concat();
    !is_tracked(&braced) && (is_held(name) || !is_held(&braced))
}

/// Whether this lock is `{a}`, and `a`, which has the same queue key, is tracked.
#[must_use]
pub fn is_twin_tracked(lock: &LockId) -> bool {
    let inner = names::unbraced(&lock.name);
    inner.is_some_and(|inner| table(|table| table.contains(lock.db, inner)))
}

/// A database was flushed; `None`: all were.
pub fn flushed(_: &Ctx, db: Option<i32>) {
    stats(Stats::forget_holders);
    touch_all(table(|table| table.all(db)), Touch::LOCK);
    // A lock without a queue is not arriving any more.
    touch_all(arriving(Arriving::take_all), Touch::QUEUE);
}

/// Two databases have changed places.
pub fn swapped(_: &Ctx, one: i32, other: i32) {
    stats(Stats::forget_holders);
    sessions(|sessions| sessions.swap(one, other));
    notes(|notes| notes.swap(one, other));
    let now = conditions::now();
    touch_all(table(|table| table.swap(one, other, now)), Touch::QUEUE);
}

/// The server has become a replica, or the master.
pub fn role_changes(ctx: &Ctx, replica: bool) {
    waiting(|waiting| waiting.replica.set(replica));
    if replica {
        becomes_replica(ctx);
    } else {
        grant_grace();
        go_ahead_of_the_clock();
        touch_all(followed(std::mem::take), Touch::LOADED);
    }
}

/// A replica has no waiters: it only notes which locks have a queue.
fn becomes_replica(ctx: &Ctx) {
    sent_away::to_the_master(ctx);
    let locks = table(|table| {
        let locks = table.all(None);
        table.clear(ctx);
        locks
    });
    followed(|followed| followed.extend(locks));
    followed(|followed| followed.extend(arriving(Arriving::take_all)));
    sessions(Sessions::clear);
    frozen(Frozen::clear);
    notes(Notes::forget_waiters);
    stats(Stats::forget_holders);
}

fn touch_all(locks: impl IntoIterator<Item = LockId>, touch: Touch) {
    for lock in locks {
        note(|notes| notes.touch(lock, touch));
    }
}
