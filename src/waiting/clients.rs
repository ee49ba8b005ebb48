//! Blocking a client, and the end of its wait: a reply, a time-out or a disconnect.
//!
//! The server calls the functions here when it makes a client's reply, when the client's time is up, and when
//! its connection closes. The blocked clients themselves, and the rule that each wait ends once, are in
//! [`blocked`](super::blocked).
//!
//! At the end of an iteration the server makes the replies of unblocked clients, then writes them,
//! then closes what broke. A receiver can be killed, or its connection break, after its reply was
//! made and before it was written. So hand-offs are remembered to the end of their iteration: if
//! the receiver's connection closes in it, the lock is taken back. (Later the client may have read
//! its token, and the lease decides.)

use crate::error::{Error, moved};
use crate::fault;
use crate::lock::{Connection, Millis, Now, Owner, Tick, Ticket};
use crate::server::Ctx;
use crate::server::block::{Blocking, Id};
use crate::server::user;

use super::blocked::{Blocked, BlockedAcquire, Client, Outcome};
use super::effects::{unblock, undelivered};
use super::frozen::is_here;
use super::id::LockId;
use super::sent_away::keep_place;
use super::state::{blocked, note, notes, sessions, stats, table};
use super::stats::Stats;

/// Blocks the calling client on a lock for `timeout` milliseconds (0: without limit). `None` if
/// the server cannot; nothing has been replied then.
#[must_use]
pub fn block(ctx: &Ctx, lock: LockId, owner: &[u8], timeout: Millis, now: Now) -> Option<Ticket> {
    let client = Client {
        handle: ctx.block()?,
        lock,
        owner: Owner::from(owner),
        // One tick more, because the current one is partly over: the client must not time out early.
        until: (timeout > 0).then(|| now.tick_after(timeout).saturating_add(1)),
        connection: ctx.client_id(),
        allowed_at: user::changes(),
        outcome: None,
        held_back: false,
    };
    Some(blocked(|blocked| blocked.add(client)))
}

/// Unblocks every client that has an outcome; the iteration of the event loop ends.
pub fn let_go(ctx: &Ctx) {
    let mut held_back = Vec::new();
    while let Some(ticket) = blocked(Blocked::take_ended) {
        if must_wait(ctx, ticket) {
            held_back.push(ticket);
            continue;
        }
        let client = blocked(|blocked| blocked.remove(ticket));
        if let Some(Client {
            handle,
            outcome: Some(outcome),
            ..
        }) = client
        {
            handle.unblock(outcome);
        }
    }
    blocked(|blocked| blocked.hold_back(held_back));
}

/// Whether the reply to a client whose time is up must wait. While writes are paused for a failover, its leaving
/// the queue cannot be written, and perhaps never will be. The client then keeps its place at the other server,
/// and is told to ask there (UNBLOCKED or MOVED).
fn must_wait(ctx: &Ctx, ticket: Ticket) -> bool {
    let over = blocked(|blocked| {
        let client = blocked.get(ticket)?;
        let is_over = matches!(client.outcome, Some(Outcome::Over));
        is_over.then(|| (client.held_back, client.lock.clone()))
    });
    let Some((held_back, lock)) = over else {
        return false;
    };
    ctx.is_handing_over() || (held_back && !is_here(ctx, &lock))
}

/// The most clients that are timed out in one batch: the server has as much work with each as the
/// module has.
const TIMED_OUT_AT_ONCE: usize = 200;

/// Times out the clients whose time was up at this instant of the steady clock: one batch, the rest in the next
/// iterations.
pub fn time_out_due(at: Tick) {
    for _ in 0..TIMED_OUT_AT_ONCE {
        let Some((ticket, lock, owner)) = blocked(|blocked| blocked.first_due(at)) else {
            break;
        };
        unblock(ticket, Outcome::Over);
        stats(Stats::timed_out);
        give_up_place(lock, owner, ticket);
    }
}

impl Blocking for BlockedAcquire {
    type Outcome = Outcome;

    fn reply(ctx: &Ctx, outcome: &Outcome) {
        match outcome {
            Outcome::Granted(grant) => {
                fault::point("in-a-reply", &grant.owner);
                ctx.reply_integer(grant.token);
                notes(|notes| notes.deliver(ctx.client_id(), grant.clone()));
            }
            Outcome::Nil | Outcome::Over => ctx.reply_nil(),
            Outcome::Refused(error) => ctx.reply_error(&error.to_string()),
            Outcome::Moved { slot, node } => ctx.reply_error(&moved(*slot, node)),
        }
    }

    fn undelivered(_: &Ctx, outcome: Outcome) {
        undelivered(outcome);
    }

    fn timed_out(ctx: &Ctx, id: Id) {
        let outcome = leave(id, give_up_place);
        let is_over = matches!(outcome, None | Some(Outcome::Over));
        if is_over && ctx.is_handing_over() {
            // Whether it has left is not known yet.
            ctx.reply_error(&Error::Unblocked.to_string());
            stats(Stats::disconnected);
        } else if let Some(outcome) = outcome {
            Self::reply(ctx, &outcome);
        } else {
            ctx.reply_nil();
            stats(Stats::timed_out);
        }
    }

    fn disconnected(ctx: &Ctx, id: Id) {
        stats(Stats::disconnected);
        // Not a CLIENT UNBLOCK: the server unblocks all clients while the cluster is down.
        let outcome = if ctx.cluster_is_down() {
            leave(id, |lock, owner, ticket| {
                keep_place(ctx, lock, &owner, ticket);
            })
        } else {
            leave(id, give_up_place)
        };
        if let Some(outcome) = outcome {
            undelivered(outcome);
        }
    }
}

/// A client's wait has ended without the module. Unless the client got its outcome in this iteration,
/// its place in the queue is handled by `place`.
fn leave(id: Id, place: impl FnOnce(LockId, Owner, Ticket)) -> Option<Outcome> {
    let (ticket, client) = blocked(|blocked| blocked.remove_id(id))?;
    client.handle.discard();
    if client.outcome.is_none() {
        place(client.lock, client.owner, ticket);
    }
    client.outcome
}

fn give_up_place(lock: LockId, owner: Owner, ticket: Ticket) {
    table(|table| table.mark_gone(&lock, &owner, ticket));
    note(|notes| notes.remove_gone(lock, owner));
}

/// A connection closes. The locks that are bound to it are given up. If a lock was handed to it in
/// this iteration, the client has not read the reply, unless it sent QUIT after ACQUIRE and
/// everything was written.
pub fn connection_closes(ctx: &Ctx, connection: Connection) {
    let locks = sessions(|sessions| sessions.take(connection));
    if !locks.is_empty() {
        note(|notes| notes.give_up(connection, locks));
    }
    if let Some(grant) = notes(|notes| notes.take_delivered(connection))
        && !ctx.closes_after_reply(connection)
    {
        note(|notes| notes.take_back(grant));
    }
}
