//! Looks once a second at the hash of each lock with waiters or a session.
//!
//! Most changes by other clients are seen: key events and the command filter report them. A field that expires by
//! itself, or that another module takes out, is not reported, and the waiters would wait for a holder that is gone.
//!
//! A millisecond is spent on it at once, and at most a twentieth of the time: with more than some twenty thousand locks
//! a round takes longer than a second.

use std::rc::Rc;

use crate::keyspace::Tracked;
use crate::keyspace::held::has_lost_holders;
use crate::lock::Millis;
use crate::server::Ctx;

use super::conditions;
use super::deferred::Notes;
use super::id::LockId;
use super::slice::Slice;
use super::state::{note, notes, table, waiting};
use super::touch::Touch;

/// Milliseconds from the beginning of one round to the next.
const ROUND: Millis = 1000;
/// How many locks are taken from the table at once.
const SOME: usize = 50;

/// Goes on with the round that is under way, or begins one.
pub fn go_on(ctx: &Ctx) {
    if !table(|table| table.schedule.in_round) {
        let now = conditions::tick();
        if now.saturating_sub(waiting(|waiting| waiting.round_began.get())) < ROUND {
            return;
        }
        waiting(|waiting| waiting.round_began.set(now));
        notes(Notes::forget_losing);
    }
    let slice = Slice::begin_search();
    let mut last = waiting(|waiting| waiting.looked_at.take());
    loop {
        let locks = table(|table| table.behind(last.as_ref(), SOME));
        for (db, _, name) in &locks {
            let (db, name) = (*db, Rc::clone(name));
            look(ctx, LockId { db, name });
        }
        last = locks.last().cloned();
        if last.is_none() || slice.is_over() {
            break;
        }
    }
    table(|table| table.schedule.in_round = last.is_some());
    waiting(|waiting| waiting.looked_at.set(last));
}

fn look(ctx: &Ctx, lock: LockId) {
    let holders = |tracked: &Tracked| tracked.shared.as_ref().map(|shared| shared.len());
    let known = table(|table| {
        let is_ours = table.is_tracked(&lock);
        table.tracked(&lock).filter(|_| is_ours).map(holders)
    });
    let Some(shared) = known else {
        return;
    };
    if ctx.select_db(lock.db) && has_lost_holders(ctx, &lock.name, shared) {
        note(|notes| notes.touch(lock, Touch::LOCK));
    }
}
