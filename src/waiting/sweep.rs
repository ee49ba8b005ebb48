//! Work that has to wait until no command is running: waiters whose connections have closed leave
//! the queue, and locks whose receiver was gone before it could be told are taken back.
//!
//! Connections can close in the middle of another client's command, and many at once. So the
//! callbacks only take note, and the queue is changed when the event loop is about to sleep,
//! still in the same turn of it: many waiters of one lock then leave in one go. Until then the
//! rules know them as gone and never hand a lock to them.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::lock::{Owner, Presence, State, rules, turn};
use crate::server::timer::{self, Alarm};
use crate::server::{Ctx, string};

use super::step;
use super::table::LockId;

#[derive(Debug, Default)]
struct Notes {
    gone: HashMap<LockId, Vec<Owner>>,
    lost: Vec<(LockId, Owner, i64)>,
}

thread_local! {
    static NOTES: RefCell<Notes> = RefCell::new(Notes::default());
}

/// Takes note of a waiter whose connection has closed.
pub fn remove_gone(lock: LockId, owner: Owner) {
    NOTES.with_borrow_mut(|notes| notes.gone.entry(lock).or_default().push(owner));
}

/// Takes note of a lock whose receiver was gone. This happens after the event loop's hook has
/// run, so a timer makes it run again.
pub fn take_back(ctx: &Ctx, lock: LockId, owner: Owner, token: i64) {
    NOTES.with_borrow_mut(|notes| notes.lost.push((lock, owner, token)));
    // It rings once and needs no stopping.
    let _ = timer::start::<Sweep>(ctx, 0);
}

struct Sweep;

impl Alarm for Sweep {
    fn ring(ctx: &Ctx) {
        sweep(ctx);
    }
}

/// Does what was noted. Runs whenever the event loop is about to sleep.
pub fn sweep(ctx: &Ctx) {
    let idle = NOTES.with_borrow(|notes| notes.gone.is_empty() && notes.lost.is_empty());
    if idle {
        return;
    }
    if ctx.flags().replica() {
        // The keys are the master's. It learns of nobody here, and the deadlines pass.
        NOTES.take();
        return;
    }
    if ctx.writes_paused() {
        return;
    }
    let notes = NOTES.take();
    for (lock, owners) in notes.gone {
        drop_gone(ctx, &lock, &owners);
    }
    for (lock, owner, token) in notes.lost {
        if ctx.select_db(lock.db) {
            // Where a key has another type by now, there is no lock to take back.
            let _ = step(ctx, string(&lock.name), |step| {
                let (rules, now) = (step.rules, step.now);
                rules::take_back(step.state, &owner, token, &rules, now, &mut step.events);
                Ok(())
            });
        }
    }
}

fn drop_gone(ctx: &Ctx, lock: &LockId, owners: &[Owner]) {
    if !ctx.select_db(lock.db) {
        return;
    }
    let dropped = step(ctx, string(&lock.name), |step| {
        let mut gone = Vec::with_capacity(owners.len());
        for owner in owners {
            let waiter = step.state.waiter(owner);
            if waiter.is_some_and(|waiter| waiter.presence == Presence::Gone) {
                gone.push(Owner::clone(owner));
            }
        }
        step.state.remove_all(&gone);
        turn::settle(step.state, &step.rules, step.now, None, &mut step.events);
        Ok(())
    });
    if dropped.is_err() {
        // A key has another type by now. They leave as soon as the queue can be changed again.
        for owner in owners {
            remove_gone(lock.clone(), Owner::clone(owner));
        }
    }
}
