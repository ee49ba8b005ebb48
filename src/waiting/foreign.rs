//! Changes from outside the module: to a lock's keys, to whole databases, to the server's role.
//!
//! A key event can come in the middle of anything, and the server forbids writing in it (before
//! 7.2). So only the lock's name is noted, and the lock is looked at when the iteration of the
//! event loop ends, before any reply is written. The keys as they are then decide, not the
//! event: several commands may have run since.
//!
//! Where scripts are intercepted, the module knows a lock from the first event of its queue on. Where they run as
//! Lua, it looks only at locks that are its own.

use redis_module::NotifyEvent;

use crate::config;
use crate::keyspace::names::is_redissons;
use crate::keyspace::number::number;
use crate::keyspace::{Names, QueueView, names};
use crate::lock::Refusal;
use crate::server::{Access, Ctx, string};
use crate::stats::Stats;

use super::conditions::{is_here, learn};
use super::connections::Outcome;
use super::effects::give_outcome;
use super::record::LockId;
use super::state::{sessions, stats, table, touch, waiting};

/// The server reports that a key was changed from outside the module.
pub fn key_changes(ctx: &Ctx, class: NotifyEvent, event: &[u8], key: &[u8]) {
    let comes_from_elsewhere = COMES_FROM_ELSEWHERE.contains(&event);
    let there = comes_from_elsewhere.then(|| ctx.open(&string(key), Access::Read).db());
    let db = there.flatten().unwrap_or_else(|| ctx.db());
    if class == NotifyEvent::EXPIRED {
        stats(|stats| stats.expired(db, key));
        if waiting(|waiting| waiting.stepping.get()) {
            // The step that is running has seen the expiry, and handles it.
            return;
        }
    }
    if names::queue_of(key).is_some() {
        // Commands from the append-only file raise the same events as commands of clients.
        let is_loading = !waiting(|waiting| waiting.has_begun.get());
        let is_loaded = is_loading || class == NotifyEvent::LOADED || comes_from_elsewhere;
        let view = if is_loaded {
            QueueView::Loaded
        } else {
            QueueView::Touched
        };
        touch_queue(db, key, view);
    } else if names::is_token(key) {
        learn(
            ctx.open(&string(key), Access::Read)
                .read(number)
                .flatten()
                .unwrap_or(0),
        );
    }
    // A lock may be named as these keys are.
    if NotifyEvent::GENERIC
        .union(NotifyEvent::EVICTED)
        .union(NotifyEvent::EXPIRED)
        .contains(class)
    {
        lock_changes(db, key);
    }
}

/// Events of keys that arrive already written: their writer is unknown. Their database may differ from that of
/// the command, and the key tells it: in a transaction the context of Valkey 9.1 has that of the command.
const COMES_FROM_ELSEWHERE: [&[u8]; 4] = [b"restore", b"move_to", b"rename_to", b"copy_to"];

/// Notes that the key of a queue or of its scores was touched from outside the module. Where scripts run as Lua, only
/// queues that were loaded concern locks that are not tracked.
pub fn touch_queue(db: i32, key: &[u8], view: QueueView) {
    let all = view == QueueView::Loaded || config::intercept_eval();
    let locks = names::locks_of(key).into_iter().flatten().flatten();
    for name in locks.filter(|name| all || table(|table| table.contains(db, name))) {
        touch(&LockId::new(db, name), view);
    }
}

/// A key that may be a lock's was deleted, replaced or given another lease.
fn lock_changes(db: i32, key: &[u8]) {
    stats(|stats| stats.taken_away(db, key));
    if table(|table| table.contains(db, key)) {
        touch(&LockId::new(db, key), QueueView::AsLeft);
    }
}

/// Whether a lock has waiters or shared holders, as the keys say.
pub fn has_waiters(ctx: &Ctx, lock: &LockId) -> bool {
    let names = Names::of(&lock.name);
    ctx.select_db(lock.db)
        && (ctx.has_key(&names.queue)
            || ctx.has_key(&names.deadlines)
            || ctx.has_key(&names.shared))
}

/// Forgets what is known of a lock that has left with its slot, so that nothing of it is there if the slot returns. Its
/// waiters are to ask again, and the server tells them where.
///
/// False, and nothing is done, if a part of the lock is here.
pub fn forget_if_gone(ctx: &Ctx, lock: &LockId) -> bool {
    if has_waiters(ctx, lock) || ctx.has_key(&string(&lock.name)) {
        return false;
    }
    let tracked = table(|table| table.remove(lock));
    for session in tracked.sessions() {
        for (connection, _) in &session.holders {
            sessions(|sessions| sessions.unbind(*connection, lock, &session.owner));
        }
    }
    let waiters = tracked.line.iter();
    for ticket in waiters.filter_map(|(_, waiter)| waiter.ticket()) {
        give_outcome(ticket, Outcome::Refused(Refusal::Moving.into()));
    }
    true
}

/// Whether the keys of a lock that is not known yet say that it is the module's: it has waiters or shared holders.
/// Where scripts run as Lua, it needs shared holders, or a waiter that is not named as Redisson names its own. So does
/// a free lock, unless its keys were loaded: before Redisson 3.52.0 a name mapper changes a lock's name, and not its
/// queue's. Of loaded keys alone the whole queue is looked at.
pub fn has_own_keys(ctx: &Ctx, lock: &LockId, are_loaded: bool) -> bool {
    if !has_waiters(ctx, lock) {
        return false;
    }
    let names = Names::of(&lock.name);
    let mut queue = ctx.open(&names.queue, Access::Read);
    let looked_at = if are_loaded { queue.len() } else { 1 };
    let mut waiters = (0..looked_at).map_while(|index| queue.list_get(index));
    // Where keys are arriving, to look for one can delete it.
    let may_be_redissons = are_loaded || !is_here(ctx, lock) || ctx.has_key(&names.lock);
    config::intercept_eval() && may_be_redissons
        || ctx.has_key(&names.shared)
        || waiters.any(|owner| !is_redissons(owner.as_slice()))
}

/// Whether the queue of `name` is that lock's, and not its twin's: it is that of the one that is tracked. One that is
/// found in the keys belongs to `x`, unless only `{x}` is held, or named first
/// ([`require_own_queue`](super::require_own_queue)).
pub fn has_queue(ctx: &Ctx, name: &[u8]) -> bool {
    let Some(twin) = names::twin(name) else {
        return true;
    };
    let db = ctx.db();
    let [is_mine, is_twins] = [name, &twin].map(|name| table(|table| table.contains(db, name)));
    if is_mine || is_twins {
        return is_mine;
    }
    let is_braced = names::unbraced(name).is_some();
    let (plain, braced) = if is_braced {
        (&*twin, name)
    } else {
        (name, &*twin)
    };
    let is_held = |name: &[u8]| ctx.has_key(&string(name));
    is_braced == (is_held(braced) && !is_held(plain))
}

/// A database was flushed; `None`: all were.
pub fn flushed(_: &Ctx, db: Option<i32>) {
    stats(Stats::forget_holders);
    touch_all(db);
}

/// All locks of a database, or of all, are to be looked at.
pub fn touch_all(db: Option<i32>) {
    for lock in table(|table| table.all(db)) {
        touch(&lock, QueueView::AsLeft);
    }
}
