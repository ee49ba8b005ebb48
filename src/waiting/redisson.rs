//! Redisson's own clients, as their intercepted scripts show them: who asks lives, and who leaves
//! is not put back.

use crate::keyspace::names;
use crate::lock::{Millis, Owner};
use crate::server::{Ctx, Str};

use super::table::LockId;
use super::{TABLE, sweep};

/// A waiter has asked for a lock: a sign of life, good for so long.
pub fn asks(ctx: &Ctx, lock: &Str, owner: Owner, alive: Millis) {
    sweep::asked(ctx, LockId::new(ctx.db(), lock.as_slice()), owner, alive);
}

/// A script has run natively: the module's rules act on what it has left.
pub fn script_is_through(ctx: &Ctx) {
    sweep::attend(ctx);
}

/// A waiter is about to leave the queue with this key.
pub fn leaves(ctx: &Ctx, queue: &Str, owner: &[u8]) {
    let locks = names::locks_of(queue.as_slice());
    for lock in locks.into_iter().flatten().flatten() {
        let id = LockId::new(ctx.db(), lock);
        TABLE.with_borrow_mut(|table| table.mark_left(&id, owner));
    }
}
