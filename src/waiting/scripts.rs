//! What the command filter shows: scripts of Redisson's clients, and commands that raise no key event to which
//! the module subscribes.

use crate::error::Error;
use crate::keyspace::{Names, OpenLock, names};
use crate::lock::{Millis, Owner, Step};
use crate::server::Ctx;

use super::deferred::Notes;
use super::effects::WakeBy;
use super::id::LockId;
use super::state::{note, notes, table};
use super::step::{queue_touched, step_on};
use super::touch::Touch;
use super::touched;

/// Takes the step that a script has become. If the lock becomes free, `wake` wakes the head. If `wake` returns
/// false, the head is woken as by any other step.
///
/// # Errors
/// As [`super::step()`].
pub fn step<T>(
    ctx: &Ctx,
    names: &Names,
    wake: WakeBy<'_>,
    decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> T,
) -> Result<T, Error> {
    let queue = queue_touched(ctx, names.name());
    step_on(ctx, names, queue, Some(wake), |step| {
        // Without its queue a lock is left to the script.
        step.state.require_queue()?;
        Ok(decide(step))
    })
}

/// A script is about to run as Lua on a lock, although scripts are intercepted. Live waiters that it drops are
/// put back afterwards.
pub fn touches(lock: &[u8]) {
    for lock in table(|table| table.tracked_of(lock)) {
        note(|notes| notes.touch(lock, Touch::BY_SCRIPT));
    }
}

/// Such a script has run: the rules repair the queue and serve the head.
pub fn have_run(ctx: &Ctx) {
    touched::attend(ctx);
}

/// A waiter is about to leave the queue with this key by a script that runs as Lua.
pub fn leaves(ctx: &Ctx, queue: &[u8], owner: &[u8]) {
    let locks = names::locks_of(queue);
    for lock in locks.into_iter().flatten().flatten() {
        let id = LockId::new(ctx.db(), lock);
        table(|table| table.mark_left(&id, owner));
    }
}

/// A waiter has been seen asking by a script that runs as Lua: a sign of life. A filter cannot tell the
/// database, so it counts in each in which the lock is tracked.
pub fn asks(lock: &[u8], owner: &[u8], patience: Millis) {
    let locks = table(|table| table.tracked_of(lock));
    for lock in locks {
        note(|notes| notes.asks(lock, Owner::from(owner), patience));
    }
}

/// A client takes fields out of a hash, now or when its transaction runs. If the hash is a lock with waiters, it is
/// looked at: the module does not subscribe to the key events of hashes.
pub fn takes_fields(key: &[u8]) {
    for lock in table(|table| table.tracked_of(key)) {
        note(|notes| notes.takes_fields(lock));
    }
}

/// A transaction is about to run: locks that it may take fields out of are looked at afterwards.
pub fn transaction_runs() {
    if notes(|notes| notes.may_lose_fields()) {
        note(Notes::touch_losing);
    }
}

/// A client publishes. If it is a wake-up, the module need not send it once more.
pub fn publishes(channel: &[u8]) {
    let is_wake_up = channel.starts_with(b"redisson_lock__channel:");
    if is_wake_up && table(|table| !table.is_empty()) {
        notes(|notes| notes.publish(channel));
    }
}
