//! Doing what was noted of waiters, hand-offs, sessions and scores: waiters whose connections have
//! closed leave the queue, locks whose receiver was gone are taken back, locks bound to closed
//! connections are given up, and scores are lined up before scripts run as Lua.
//!
//! Each is a step on a lock, and is taken between commands only.

use crate::lock::Owner;
use crate::server::Ctx;

use super::deferred::{Grant, Notes};
use super::given::intercept_no_more;
use super::id::LockId;
use super::slice::Slice;
use super::state::notes;
use super::step::change;

/// Locks are taken back whose receivers have gone, and waiters leave the queues whose connections have
/// closed: as many as there is time for. Those that are left are known as gone, and no lock goes to them.
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

/// Some waiters leave the queue of a lock. False if none are left to leave any.
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

/// Some of the locks whose connections have closed are given up.
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

/// The scores of some locks are lined up; once all are, scripts run as Lua.
pub fn line_scores_up(ctx: &Ctx) {
    let Some(batch) = notes(Notes::take_some_to_line_up) else {
        return;
    };
    for lock in batch {
        change(ctx, &lock, |step| {
            step.line_up();
        });
    }
    if notes(|notes| notes.has_lined_up()) {
        intercept_no_more();
    }
}
