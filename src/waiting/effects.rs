//! Carries out the events of a step: blocked clients get their outcomes, wake-ups are published,
//! sessions are bound, and everything is counted.
//!
//! Nothing is decided here, except that a client whose user may not acquire the lock any more is
//! refused.

use std::ffi::CStr;
use std::slice;

use crate::config::{self, Pubsub};
use crate::error::Error;
use crate::keyspace::Names;
use crate::lock::{Event, Now, Tick, Ticket};
use crate::server::events;
use crate::server::user::{self, User};
use crate::server::{Ctx, Str, in_cluster, string};

use super::conditions;
use super::connections::Outcome;
use super::record::{Grant, LockId};
use super::state::{
    blocked, ensure_before_sleep, hand_off_lost, hand_offs, sessions, stats, table, token_known,
};

/// The message that wakes a waiter: "it is your turn, ask again".
pub const WAKE_UP: &[u8] = b"0";

/// The lock on which a step was taken, and when.
pub struct Scene<'a> {
    pub names: &'a Names,
    pub db: i32,
    pub now: Now,
    /// The command by which waiters are woken, if not as configured.
    pub wake_by: Option<&'static CStr>,
}

impl Scene<'_> {
    fn lock(&self) -> LockId {
        table(|table| table.id(self.db, self.names.name()))
    }
}

/// Carries out the events of a step, in their order.
pub fn carry_out(ctx: &Ctx, scene: &Scene<'_>, events: &mut Vec<Event>) {
    for event in events.drain(..) {
        stats(|stats| stats.count(&event, scene.db, scene.names.name(), scene.now));
        carry_out_one(ctx, scene, event);
    }
}

fn carry_out_one(ctx: &Ctx, scene: &Scene<'_>, event: Event) {
    match event {
        Event::Granted {
            ticket,
            owner,
            token,
            session,
            waited,
            ..
        } => {
            let asked = Tick::of(scene.now.steady.saturating_sub(waited));
            let grant = Grant {
                lock: scene.lock(),
                owner,
                token,
                at: scene.now.tick(),
                session,
            };
            hand_over(scene.names, (ticket, asked), grant);
        }
        Event::HeldAgain { token, once: true } => {
            token_known(&scene.lock(), token);
        }
        Event::TakenOver { ticket } => give_outcome(ticket, Outcome::Refused(Error::TAKEN_OVER)),
        Event::Cancelled {
            ticket: Some(ticket),
        } => give_outcome(ticket, Outcome::Nil),
        Event::WakeUp { owner } => wake(ctx, scene, &scene.names.channel(&owner)),
        Event::Bound { connection, owner } => {
            let lock = scene.lock();
            events::follow_connections(ctx);
            sessions(|sessions| sessions.bind(connection, lock, owner));
        }
        Event::Unbound { connection, owner } => {
            let lock = scene.lock();
            sessions(|sessions| sessions.unbind(connection, &lock, &owner));
        }
        Event::Cancelled { ticket: None }
        | Event::Acquired { .. }
        | Event::HeldAgain { .. }
        | Event::Released { .. }
        | Event::LeaseEnded { .. }
        | Event::Enqueued
        | Event::Left { .. }
        | Event::Reaped { .. } => (),
    }
}

/// A blocked client has become the holder, which asked at this instant.
fn hand_over(names: &Names, (ticket, asked): (Ticket, Tick), grant: Grant) {
    hand_offs(|hand_offs| hand_offs.tokens.insert(grant.token));
    if !conditions::may_have_changed_permissions(asked) || may_still_acquire(ticket, names, &grant)
    {
        give_outcome(ticket, Outcome::Granted(grant));
    } else {
        give_outcome(ticket, Outcome::Refused(Error::PERMISSION_GONE));
        hand_off_lost(grant);
    }
}

/// Whether a blocked client's user may still acquire the lock: permissions can change while it waits, and the server
/// checks them only when the command arrives.
fn may_still_acquire(ticket: Ticket, names: &Names, grant: &Grant) -> bool {
    let Some(user) = user::user_of(ticket) else {
        return true;
    };
    let command = [b"fairlock.acquire", names.name(), &grant.owner];
    User::named(&user).is_some_and(|user| user.may_run(grant.lock.db, &command) != Some(false))
}

/// Gives a blocked client its outcome, which is only noted. If the client's wait has ended already, the outcome
/// is not received.
///
/// [`clients`](super::clients) unblocks the client when the iteration of the event loop ends. Until then the
/// server regards it as blocked; otherwise CLIENT UNBLOCK would end its wait without any reply.
pub fn give_outcome(ticket: Ticket, outcome: Outcome) {
    match blocked(|blocked| blocked.give_outcome(ticket, outcome)) {
        Ok(()) => ensure_before_sleep(),
        Err(outcome) => not_received(outcome),
    }
}

/// A client has gone before it had its reply. If it was granted the lock, the hand-off is lost (see
/// [`clients`](super::clients)).
pub fn not_received(outcome: Outcome) {
    if let Outcome::Granted(grant) = outcome {
        hand_off_lost(grant);
    }
}

/// Sends a waiter its wake-up, in the way that its client listens.
fn wake(ctx: &Ctx, scene: &Scene<'_>, channel: &Str) {
    let configured = match config::pubsub() {
        Pubsub::auto if in_cluster() => &[c"SPUBLISH"][..],
        Pubsub::auto | Pubsub::publish => &[c"PUBLISH"],
        Pubsub::spublish => &[c"SPUBLISH"],
        Pubsub::both => &[c"PUBLISH", c"SPUBLISH"],
    };
    let asked_for = scene.wake_by.as_ref();
    let message = string(WAKE_UP);
    for command in asked_for.map_or(configured, slice::from_ref) {
        ctx.publish(command, channel, &message);
    }
}
