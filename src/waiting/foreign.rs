//! What others do: to a lock's keys, to whole databases, to the server's role.
//!
//! A key event can come in the middle of anything, and the server forbids writing in it (before
//! 7.2). So only the lock's name is noted, and the lock is looked at when the turn of the event
//! loop ends, before anybody's reply is written. What is found then decides, not what the event
//! said: several commands may have run since.
//!
//! A lock is known here from the first event of its queue on, whoever made it, so that the queues
//! of scripts are served like any other. A replica notes which locks have a queue and leaves them
//! alone; when it becomes the master it looks at all of them.

use std::cell::RefCell;
use std::collections::HashSet;

use redis_module::NotifyEvent;

use crate::keyspace::{Names, names};
use crate::server::{Access, Ctx, string};

use super::table::LockId;
use super::{STEPPING, TABLE, grant_grace, moving, session, stats, sweep};

thread_local! {
    /// On a replica: the locks that have a queue.
    static FOLLOWED: RefCell<HashSet<LockId>> = RefCell::default();
}

/// A key was changed, by us or by anyone.
pub fn key_changes(ctx: &Ctx, class: NotifyEvent, event: &[u8], key: &[u8]) {
    if class == NotifyEvent::EXPIRED {
        stats::expired(ctx.db(), key);
    }
    if STEPPING.get() {
        return;
    }
    if let Some(locks) = names::locks_of(key) {
        let db = ctx.db();
        for name in locks.into_iter().flatten() {
            sweep::touched(ctx, LockId::new(db, name), true);
        }
        return;
    }
    if !NotifyEvent::GENERIC
        .union(NotifyEvent::EVICTED)
        .union(NotifyEvent::EXPIRED)
        .contains(class)
    {
        return;
    }
    let db = ctx.db();
    if event != b"expire" {
        stats::taken_away(db, key);
    }
    if TABLE.with_borrow(|table| table.contains(db, key)) {
        sweep::touched(ctx, LockId::new(db, key), false);
    }
}

/// Looks at the locks whose keys were touched, on a replica: only which have a queue is noted.
pub fn follow(ctx: &Ctx, touched: impl IntoIterator<Item = LockId>) {
    for lock in touched {
        let queued = has_queue(ctx, &lock);
        FOLLOWED.with_borrow_mut(|followed| {
            if queued {
                followed.insert(lock);
            } else {
                followed.remove(&lock);
            }
        });
    }
}

/// Whether anyone is in a lock's queue, as the keys say.
#[must_use]
pub fn has_queue(ctx: &Ctx, lock: &LockId) -> bool {
    let names = Names::of(&lock.name);
    ctx.select_db(lock.db)
        && !(ctx.open(&names.queue, Access::Read).is_empty()
            && ctx.open(&names.deadlines, Access::Read).is_empty())
}

/// Whether a queue that nobody here waits in is this lock's. By Redisson's rule for names the
/// locks `a` and `{a}` share one queue; without anything else to go by it is that of `a`, unless
/// only `{a}` is held.
#[must_use]
pub fn is_meant(ctx: &Ctx, lock: &LockId) -> bool {
    let is_held = |name: &[u8]| !ctx.open(&string(name), Access::Read).is_empty();
    let is_known = |name: &[u8]| TABLE.with_borrow(|table| table.contains(lock.db, name));
    let name = &*lock.name;
    if let Some(inner) = names::unbraced(name) {
        return is_held(name) && !is_held(inner) && !is_known(inner);
    }
    if name.contains(&b'{') {
        return true;
    }
    let braced = [b"{", name, b"}"].concat();
    !is_known(&braced) && (is_held(name) || !is_held(&braced))
}

/// A database was flushed; `None`: all were.
pub fn flushed(ctx: &Ctx, db: Option<i32>) {
    stats::forget_holders();
    let locks = TABLE.with_borrow(|table| table.all(db));
    for lock in locks {
        sweep::touched(ctx, lock, false);
    }
}

/// Two databases have changed places.
pub fn swapped(ctx: &Ctx, one: i32, other: i32) {
    stats::forget_holders();
    session::swap(one, other);
    sweep::swap(one, other);
    let locks = TABLE.with_borrow_mut(|table| table.swap(one, other));
    for lock in locks {
        sweep::touched(ctx, lock, true);
    }
}

/// The server has become a replica, or the master.
pub fn role_changes(ctx: &Ctx, replica: bool) {
    if replica {
        let locks = TABLE.with_borrow_mut(|table| {
            let locks = table.all(None);
            table.clear(ctx);
            locks
        });
        FOLLOWED.with_borrow_mut(|followed| followed.extend(locks));
        session::clear();
        moving::clear();
        sweep::forget_waiters();
        stats::forget_holders();
    } else {
        grant_grace();
        let followed = FOLLOWED.with_borrow_mut(std::mem::take);
        for lock in followed {
            sweep::touched(ctx, lock, false);
        }
    }
}

/// Forgets all.
pub fn clear() {
    FOLLOWED.with_borrow_mut(HashSet::clear);
}
