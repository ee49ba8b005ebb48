//! The steps that follow from notes: waiters whose connections have closed leave the queue, locks of lost
//! hand-offs are taken back, and locks that are bound to closed connections are given up.
//!
//! These steps are taken between commands only.

use crate::lock::Owner;
use crate::server::Ctx;

use super::deferred::{Grant, Notes};
use super::id::LockId;
use super::slice::Slice;
use super::state::{notes, table, waiting};
use super::step::change;

/// Takes back the locks of lost hand-offs, and removes waiters whose connections have closed, as many as there
/// is time for. The others stay marked as gone, and no lock is handed to them.
pub fn drop_gone_and_lost(ctx: &Ctx, slice: Slice) {
    let lost = notes(Notes::take_lost);
    drop_some_gone(ctx);
    for grant in lost {
        let Grant { owner, token, .. } = &grant;
        // Where a key has another type by now, there is no lock to take back.
        change(ctx, &grant.lock, |step| {
            step.take_back(owner, *token, grant.session);
        });
    }
    while !slice.is_over() && drop_some_gone(ctx) {}
}

/// Removes some of the waiters that have gone from the queue of one lock. False if there were none.
fn drop_some_gone(ctx: &Ctx) -> bool {
    let some = notes(Notes::take_some_gone);
    if let Some((lock, owners)) = &some {
        drop_gone(ctx, lock, owners);
    }
    some.is_some()
}

fn drop_gone(ctx: &Ctx, lock: &LockId, owners: &[Owner]) {
    let dropped = change(ctx, lock, |step| step.leave_gone(owners));
    if !dropped {
        notes(|notes| {
            for owner in owners {
                notes.gone_is_stuck(lock.clone(), Owner::clone(owner));
            }
        });
    }
}

/// Gives up some of the locks that were bound to connections that have closed.
pub fn give_up_closed(ctx: &Ctx, slice: Slice) {
    let mut given_up = 0;
    while (given_up == 0 || !slice.is_over())
        && let Some((connection, lock)) = notes(Notes::take_closed)
    {
        given_up += 1;
        let done = change(ctx, &lock, |step| step.connection_closed(connection));
        if !done {
            notes(|notes| notes.closed_is_stuck(connection, lock));
        }
    }
}

/// Scripts run as Lua from now on: hands back the locks on which only scripts work, and lines up the scores of the
/// others. Done before the module is unloaded, too.
pub fn hand_back_all(ctx: &Ctx) {
    waiting(|waiting| waiting.intercepts.set(false));
    for lock in table(|table| table.all(None)) {
        change(ctx, &lock, |step| {
            // Those of scripts are lined up at the end of the step.
            if !step.is_of_scripts() {
                step.line_up();
            }
        });
    }
}
