//! Blocking a client, and the end of its wait: a reply, a time-out or a disconnect.
//!
//! The server calls the functions here when it makes a client's reply, when the client's time is up, and when
//! its connection closes. The blocked clients themselves, and the rule that each wait ends once, are in
//! [`connections`](super::connections).
//!
//! # A lost hand-off
//!
//! The rules make a blocked waiter the holder in the middle of an iteration of the event loop. Its client gets
//! the reply when the iteration ends: the module unblocks the client, the server makes the reply, writes it, and
//! closes the connections that broke. If the client goes before it has the reply, the hand-off is lost: the lock
//! would stay with a holder that does not know of it until its lease ends. So a note is taken
//! (`Work::lost`), and between commands [`work`](super::work) takes the lock back
//! (`lock::Step::take_back`), which serves the next waiter. A connection that closes before the hand-off is no
//! such case: its waiter is marked as gone, and the rules pass it over. The cases, by the moment at which the
//! client goes:
//!
//! 1. During the step, before the client has its outcome. Another module can do that, from a key event.
//!    [`give_outcome`] does not find the client any more.
//! 2. After that, before the client is unblocked: the server calls `disconnected`. CLIENT UNBLOCK ... ERROR ends
//!    the wait in the same way. (After CLIENT UNBLOCK ... TIMEOUT the client gets its token at once.)
//! 3. After it is unblocked, before its reply is made: the server calls `not_received`. It also does if the reply
//!    panics.
//! 4. When its reply is to be made: the server would read only later that the connection has closed, because it was at
//!    work, or because its I/O threads are still reading. So after a delay [`token_for`] asks the system.
//! 5. After its reply is made: the server calls [`connection_closes`]. The last hand-off that was replied on each
//!    connection is remembered until then ([`HandOffs`](super::connections::HandOffs)). I/O threads write in their own
//!    time, so it does not matter in which iteration the connection closes, but whether the reply was sent.
//!
//! A token that may have been read is never taken back: what the system was given to send counts as read, and so does
//! what cannot be known. Then the hand-off stands, and the lease decides. It also stands if the owner has asked again
//! with ONCE, on whichever connection, and so knows that it holds the lock.
//!
//! Not lost, but refused, is a hand-off to a client whose user may not acquire the lock any more: the lock is
//! taken back in the same way, and the client gets an error (`hand_over` in [`effects`](super::effects)).
//!
//! While writes are paused (CLIENT PAUSE, a failover), no lock can be taken back; the notes wait for the end of
//! the pause. A server that becomes a replica drops them: at the new master the lease decides.

use std::cell::LazyCell;

use crate::error::Error;
use crate::fault;
use crate::keyspace::QueueView;
use crate::lock::{Connection, Millis, Now, Owner, Presence, Tick, Ticket, Waiter};
use crate::server::block::Blocking;
use crate::server::{Ctx, Reply, cluster, events};
use crate::stats::Stats;

use super::conditions::{self, is_here};
use super::connections::{Blocked, BlockedAcquire, Client, Outcome, Request};
use super::effects::{give_outcome, not_received};
use super::record::{Grant, LockId};
use super::state::{
    blocked, hand_off_lost, hand_offs, listening, note, sessions, stats, table, touch,
};
use super::step::set_timer;

/// Blocks the calling client for `timeout` milliseconds (0: without limit) after the step, at `now`, in which its owner
/// has joined a lock's queue. If the server cannot, the place is given up. [`Error::UNBLOCKED`] if the place is lost
/// already: another module can do that, from a key event of the step.
pub fn block(ctx: &Ctx, lock: &[u8], owner: &[u8], timeout: Millis, now: Now) -> Result<(), Error> {
    let ticket = ctx.client_id();
    let lock = table(|table| table.id(ctx.db(), lock));
    let waiter = table(|table| table.waiter(&lock, owner));
    if waiter.and_then(|waiter| waiter.ticket()) != Some(ticket) {
        return Err(Error::UNBLOCKED);
    }
    let Some(handle) = ctx.block() else {
        give_up_place(&lock, owner, ticket);
        return Err(Error::CANNOT_BLOCK);
    };
    let client = Client {
        handle,
        request: Request {
            ticket,
            lock,
            owner: Owner::from(owner),
            goes_on: false,
        },
        // One tick more, because the current one is partly over: the client must not time out early.
        until: (timeout > 0).then(|| now.tick_after(timeout).after(1)),
        outcome: None,
    };
    blocked(|blocked| blocked.add(client));
    if timeout > 0 {
        set_timer(ctx, now);
    }
    Ok(())
}

/// Unblocks every client that has an outcome. Called when an iteration of the event loop ends.
pub fn unblock_ended() {
    for ticket in blocked(Blocked::take_ended) {
        if let Some((handle, outcome)) = blocked(|blocked| blocked.remove_ended(ticket)) {
            handle.unblock(outcome);
        }
    }
}

/// The most clients that are timed out in one iteration: the server has more work with each than the
/// module has.
const TIME_OUT_BATCH: usize = 50;
/// Milliseconds by which a wait goes on that may not end yet.
const LONGER_WAIT: Millis = 100;

/// Times out the clients whose time was up at this instant of the steady clock: one batch, the rest in the next
/// iterations.
///
/// While writes are paused for a failover, a client cannot be taken out of the queue in the keys, and perhaps never
/// will be: it may keep its place at the other server, where it is then told to ask (UNBLOCKED or MOVED). So its wait
/// goes on until that is known.
pub fn time_out_due(ctx: &Ctx, at: Tick) {
    let is_handing_over = LazyCell::new(cluster::is_handing_over);
    for _ in 0..TIME_OUT_BATCH {
        let Some(due) = blocked(|blocked| blocked.first_due(at)) else {
            break;
        };
        if *is_handing_over || (due.goes_on && !is_here(ctx, &due.lock)) {
            let later = conditions::tick().after(LONGER_WAIT);
            blocked(|blocked| blocked.go_on(due.ticket, later));
        } else {
            give_outcome(due.ticket, Outcome::Nil);
            stats(Stats::timed_out);
            give_up_place(&due.lock, &due.owner, due.ticket);
        }
    }
}

impl Blocking for BlockedAcquire {
    type Outcome = Outcome;

    fn reply(ctx: &Ctx, outcome: &Outcome) -> Reply {
        match outcome {
            Outcome::Granted(grant) => {
                fault::point("in-a-reply", &grant.owner);
                token_for(ctx, grant)
            }
            Outcome::Nil => Reply::Nil,
            Outcome::Refused(error) => error.clone().into(),
        }
    }

    fn not_received(_: &Ctx, outcome: Outcome) {
        not_received(outcome);
    }

    fn timed_out(ctx: &Ctx) -> Reply {
        let is_handing_over = cluster::is_handing_over();
        if let Some(outcome) = leave(ctx, is_handing_over) {
            Self::reply(ctx, &outcome)
        } else if is_handing_over {
            // Here or at the other server, it asks again.
            stats(Stats::disconnected);
            Error::UNBLOCKED.into()
        } else {
            stats(Stats::timed_out);
            Reply::Nil
        }
    }

    fn disconnected(ctx: &Ctx) {
        stats(Stats::disconnected);
        // While the cluster is down, the server itself unblocks all clients.
        if let Some(outcome) = leave(ctx, ctx.cluster_is_down()) {
            not_received(outcome);
        }
    }
}

/// Milliseconds from a hand-off to its reply after which a look at the receiver costs little beside.
const PROMPT: Millis = 2;

/// The reply to a hand-off: its token, unless the receiver is known to be gone. The server may have been kept from
/// reading that, or an I/O thread has not told it yet, and what it sends now would count as read.
fn token_for(ctx: &Ctx, grant: &Grant) -> Reply {
    let connection = ctx.client_id();
    let is_late = conditions::tick() >= grant.at.after(PROMPT)
        || listening(|listening| listening.catches_up());
    events::follow_connections(ctx);
    if is_late && has_hung_up(ctx, connection) {
        hand_off_lost(grant.clone());
        return Error::UNBLOCKED.into();
    }
    hand_offs(|hand_offs| hand_offs.replied.insert(connection, grant.clone()));
    Reply::Integer(grant.token)
}

/// Whether the other end of a connection is gone. Its socket is asked for once.
fn has_hung_up(ctx: &Ctx, connection: Connection) -> bool {
    let known = hand_offs(|hand_offs| hand_offs.sockets.get(&connection).copied());
    let socket = known.or_else(|| ctx.socket(connection));
    socket.is_some_and(|socket| {
        hand_offs(|hand_offs| hand_offs.sockets.insert(connection, socket));
        socket.has_hung_up()
    })
}

/// The server has ended the wait of the calling client. Returns the outcome that it was given in this iteration, if it
/// was; else its place in the queue is kept or given up.
fn leave(ctx: &Ctx, keeps_place: bool) -> Option<Outcome> {
    let client = blocked(|blocked| blocked.remove(ctx.client_id()))?;
    client.handle.discard();
    if client.outcome.is_none() {
        let request = client.request;
        let place = if keeps_place {
            keep_place
        } else {
            give_up_place
        };
        place(&request.lock, &request.owner, request.ticket);
    }
    client.outcome
}

fn give_up_place(lock: &LockId, owner: &[u8], ticket: Ticket) {
    // No lock is handed to it any more.
    let gone = |waiter: &mut Waiter| waiter.presence = Presence::Gone;
    table(|table| table.change_blocked(lock, owner, ticket, gone));
    note(lock, |work| work.gone.push_back(Owner::from(owner)));
}

/// A connection closes. The locks that are bound to it are given up. The last hand-off that was replied to it is lost
/// if the reply surely was not sent.
pub fn connection_closes(ctx: &Ctx, connection: Connection) {
    for (lock, owner) in sessions(|sessions| sessions.take(connection)) {
        note(&lock, |work| work.closed.push_back((owner, connection)));
    }
    hand_offs(|hand_offs| hand_offs.sockets.remove(&connection));
    let Some(grant) = hand_offs(|hand_offs| hand_offs.replied.remove(&connection)) else {
        return;
    };
    let reply = format!(":{}\r\n", grant.token);
    if ctx.is_unsent(connection, b"fairlock.acquire", reply.len()) {
        hand_off_lost(grant);
    } else {
        hand_offs(|hand_offs| hand_offs.end(grant.token));
    }
}

// Clients that this server cannot serve any more, because it has become a replica or the cluster is down for it. Redis
// unblocks them itself, as with BLPOP. Valkey leaves clients that a module has blocked to the module: since 8
// while the cluster is down, since 9 in a cluster also when it becomes a replica. So clients that are still
// blocked get the reply that the server would give.

/// Sends the clients away that still wait, as these requests say, and counts them as disconnected, as if the server had
/// unblocked them. They keep their places and ask again: here, or where this server tells them.
pub fn send_away(error: &Error, are_meant: impl Fn(&Request) -> bool) {
    let waiting = blocked(|blocked| blocked.waiting()).into_iter();
    for client in waiting.filter(are_meant) {
        keep_place(&client.lock, &client.owner, client.ticket);
        stats(Stats::disconnected);
        give_outcome(client.ticket, Outcome::Refused(error.clone()));
    }
}

/// These databases have changed places: their blocked clients are in another one now than their locks.
pub fn swapped(_: &Ctx, databases: [i32; 2]) {
    send_away(&Error::UNBLOCKED, |request| {
        databases.contains(&request.lock.db)
    });
}

/// Keeps the place as that of a polling waiter; the client is expected to ask again.
fn keep_place(lock: &LockId, owner: &[u8], ticket: Ticket) {
    let now = conditions::now();
    let away = |waiter: &mut Waiter| {
        waiter.presence = Presence::Polling;
        waiter.deadline = now.listening_after(waiter.patience);
    };
    table(|table| table.change_blocked(lock, owner, ticket, away));
    touch(lock, QueueView::AsLeft);
}
