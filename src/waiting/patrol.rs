//! Looks once a second at the hash of each lock with waiters or a session.
//!
//! Most changes by other clients are seen: key events and the command filter report them. A field that expires by
//! itself, or that another module takes out, is not reported, and the waiters would wait for a holder that is gone.

use crate::keyspace::Tracked;
use crate::keyspace::held::has_lost_holders;
use crate::lock::Millis;
use crate::server::{Ctx, events};

use super::conditions;
use super::deferred::Notes;
use super::id::LockId;
use super::slice::Slice;
use super::state::{note, notes, table, waiting};
use super::touch::Touch;

/// Milliseconds from the beginning of one round to the next.
const ROUND: Millis = 1000;

/// Goes on with the round that is under way, or begins one. What is left when its time is over is left to the next
/// iteration of the event loop, which begins at once.
pub fn go_on(ctx: &Ctx) {
    let (began, mut left) =
        waiting(|waiting| (waiting.round_began.get(), waiting.round_left.take()));
    let now = conditions::tick();
    if left.is_empty() && now.saturating_sub(began) >= ROUND {
        notes(Notes::forget_losing);
        waiting(|waiting| waiting.round_began.set(now));
        left = table(|table| table.all(None));
    }
    let slice = Slice::begin();
    while let Some(lock) = left.pop() {
        look(ctx, lock);
        if slice.is_over() {
            break;
        }
    }
    if !left.is_empty() {
        events::hurry();
    }
    waiting(|waiting| waiting.round_left.set(left));
}

fn look(ctx: &Ctx, lock: LockId) {
    let holders = |tracked: &Tracked| tracked.shared.as_ref().map(|shared| shared.len());
    let Some(shared) = table(|table| table.tracked(&lock).map(holders)) else {
        return;
    };
    if ctx.select_db(lock.db) && has_lost_holders(ctx, &lock.name, shared) {
        note(|notes| notes.touch(lock, Touch::LOCK));
    }
}
