//! What the command filter and intercepted scripts bring.

use crate::error::Error;
use crate::keyspace::{Names, OpenLock};
use crate::lock::Step;
use crate::server::Ctx;

use super::deferred::Notes;
use super::effects::WakeBy;
use super::state::{note, notes, table};
use super::step::{queue_touched, step_on};

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

/// A client takes fields out of a hash, now or when its transaction runs. If the hash is a lock with waiters, it is
/// looked at: the module does not subscribe to the key events of hashes.
pub fn takes_fields(key: &[u8]) {
    for lock in table(|table| table.named(key)) {
        note(|notes| notes.takes_fields(lock));
    }
}

/// A transaction is about to run: locks that it may take fields out of are looked at afterwards.
pub fn transaction_runs() {
    if notes(|notes| notes.may_lose_fields()) {
        note(Notes::touch_losing);
    }
}
