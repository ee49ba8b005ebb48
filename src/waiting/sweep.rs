//! Work that has to wait until no command is running: waiters whose connections have closed leave
//! the queue, and locks whose receiver was gone before it could be told are taken back.
//!
//! Connections can close in the middle of another client's command, and many at once. So the
//! callbacks only take note, and the queue is changed between commands: when a turn of the event
//! loop begins and when it ends. Many waiters of one lock then leave in one go. Until then the
//! rules know them as gone and never hand a lock to them.
//!
//! At the end of a turn the server makes the replies of unblocked clients, then writes them, then
//! closes what broke. A receiver can be killed, or its connection break, after its reply was made
//! and before it was written. So hand-offs are remembered to the end of their turn: if the
//! receiver's connection closes in it, the lock is taken back. (Later the client may have read its
//! token, and the lease decides.)

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
    lost: Vec<Grant>,
    /// Hand-offs of this turn, by the receiver's connection.
    delivered: Vec<(u64, Grant)>,
}

/// A lock, its new holder and the token.
type Grant = (LockId, Owner, i64);

thread_local! {
    static NOTES: RefCell<Notes> = RefCell::new(Notes::default());
}

/// Takes note of a waiter whose connection has closed.
pub fn remove_gone(ctx: &Ctx, lock: LockId, owner: Owner) {
    let first = NOTES.with_borrow_mut(|notes| {
        let first = notes.gone.is_empty();
        notes.gone.entry(lock).or_default().push(owner);
        first
    });
    if first {
        wake_up(ctx);
    }
}

/// Takes note of a lock whose receiver was gone.
pub fn take_back(ctx: &Ctx, lock: LockId, owner: Owner, token: i64) {
    NOTES.with_borrow_mut(|notes| notes.lost.push((lock, owner, token)));
    wake_up(ctx);
}

/// Takes note of a hand-off that was replied to a connection.
pub fn delivered(connection: u64, lock: LockId, owner: Owner, token: i64) {
    let grant = (lock, owner, token);
    NOTES.with_borrow_mut(|notes| notes.delivered.push((connection, grant)));
}

/// A connection closes. If the lock was handed to it in this turn, it never read of it; unless
/// it closes because it said QUIT after ACQUIRE and everything was written.
pub fn connection_closes(ctx: &Ctx, connection: u64) {
    let grant = NOTES.with_borrow_mut(|notes| {
        let mut delivered = notes.delivered.iter();
        let index = delivered.position(|(receiver, _)| *receiver == connection)?;
        Some(notes.delivered.swap_remove(index).1)
    });
    if let Some((lock, owner, token)) = grant
        && !ctx.closes_after_reply(connection)
    {
        take_back(ctx, lock, owner, token);
    }
}

/// Does what was noted at the end of the last turn, before any command of this one.
pub fn turn_begins(ctx: &Ctx) {
    NOTES.with_borrow_mut(|notes| notes.delivered.clear());
    sweep(ctx);
}

/// What is noted after the event loop's hook has run must not wait for the next event: a timer
/// makes it run at once. It rings once and needs no stopping.
fn wake_up(ctx: &Ctx) {
    let _ = timer::start::<Sweep>(ctx, 0);
}

struct Sweep;

impl Alarm for Sweep {
    fn ring(ctx: &Ctx) {
        sweep(ctx);
    }
}

/// Does what was noted. Runs at the beginning and the end of each turn of the event loop.
pub fn sweep(ctx: &Ctx) {
    let idle = NOTES.with_borrow(|notes| notes.gone.is_empty() && notes.lost.is_empty());
    if idle {
        return;
    }
    if ctx.flags().replica() {
        // The keys are the master's. It learns of nobody here, and the deadlines pass.
        NOTES.with_borrow_mut(|notes| (notes.gone.clear(), notes.lost.clear()));
        return;
    }
    if ctx.writes_paused() {
        return;
    }
    let (gone, lost) = NOTES.with_borrow_mut(|notes| {
        let Notes { gone, lost, .. } = notes;
        (std::mem::take(gone), std::mem::take(lost))
    });
    for (lock, owners) in gone {
        drop_gone(ctx, &lock, &owners);
    }
    for (lock, owner, token) in lost {
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
        NOTES.with_borrow_mut(|notes| {
            let gone = notes.gone.entry(lock.clone()).or_default();
            gone.extend(owners.iter().map(Owner::clone));
        });
    }
}
