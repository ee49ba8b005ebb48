//! The blocked clients.
//!
//! A client that asks for a held lock is blocked under a new ticket, by which the rules know it.
//! It ends in one of three ways, and each of them forgets the ticket first, so that none of the
//! others can follow: it is unblocked with an [`Outcome`]; its time is up; its connection closes.
//!
//! An outcome is told when the turn of the event loop ends. Until then the server must not know
//! that the client is unblocked: CLIENT UNBLOCK would let it go without any reply.
//!
//! How long a client waits is counted here, by the steady clock: the server's own time-outs go by
//! the wall clock and would come an hour late if that is set back by an hour.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;

use crate::error::{Error, moved};
use crate::keyspace::{Names, names};
use crate::lock::{Connection, Millis, Now, Owner, Tick, Ticket};
use crate::server::block::{Blocking, Handle, Id};
use crate::server::user::{self, User};
use crate::server::{Ctx, Str, string};

use super::sweep::Grant;
use super::table::{LockId, give_back};
use super::{TABLE, moving, stats, sweep};

/// What a blocked client is told when it is unblocked.
#[derive(Debug)]
pub enum Outcome {
    /// It holds the lock.
    Granted(Grant),
    /// It was taken out of the queue.
    Nil,
    /// It cannot have the lock.
    Refused(Error),
    /// The lock is at another node of the cluster now.
    Moved {
        /// The lock's slot.
        slot: u16,
        /// The node's address.
        node: String,
    },
}

#[derive(Debug)]
struct Client {
    handle: Handle<Acquire>,
    lock: LockId,
    owner: Owner,
    /// When its time is up, if ever.
    until: Option<Tick>,
    connection: Connection,
    /// How often permissions had changed when it was allowed to wait.
    allowed_at: u64,
    /// What it is told when this turn ends.
    outcome: Option<Outcome>,
}

#[derive(Debug, Default)]
struct Clients {
    by_ticket: HashMap<Ticket, Client, RandomState>,
    by_until: BTreeSet<(Tick, Ticket)>,
    tickets: HashMap<Id, Ticket, RandomState>,
    /// Those with an outcome, in the order in which they got it.
    ended: Vec<Ticket>,
}

thread_local! {
    static CLIENTS: RefCell<Clients> = RefCell::new(Clients::default());
    static NEXT_TICKET: Cell<Ticket> = const { Cell::new(1) };
}

impl Clients {
    fn add(&mut self, ticket: Ticket, client: Client) {
        self.tickets.insert(client.handle.id(), ticket);
        if let Some(until) = client.until {
            self.by_until.insert((until, ticket));
        }
        self.by_ticket.insert(ticket, client);
    }

    /// Gives a client its outcome; back if it has one or is gone.
    fn end(&mut self, ticket: Ticket, outcome: Outcome) -> Result<(), Outcome> {
        let client = self.by_ticket.get_mut(&ticket);
        let Some(client) = client.filter(|client| client.outcome.is_none()) else {
            return Err(outcome);
        };
        client.outcome = Some(outcome);
        if let Some(until) = client.until.take() {
            self.by_until.remove(&(until, ticket));
        }
        self.ended.push(ticket);
        Ok(())
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Client> {
        let client = self.by_ticket.remove(&ticket)?;
        self.tickets.remove(&client.handle.id());
        if let Some(until) = client.until {
            self.by_until.remove(&(until, ticket));
        }
        give_back(&mut self.by_ticket);
        give_back(&mut self.tickets);
        Some(client)
    }

    fn remove_id(&mut self, id: Id) -> Option<(Ticket, Client)> {
        let ticket = *self.tickets.get(&id)?;
        Some((ticket, self.remove(ticket)?))
    }
}

/// Blocks the calling client on a lock for `timeout` milliseconds (0: without limit). `None` if
/// the server cannot; nothing has been replied then.
#[must_use]
pub fn block(ctx: &Ctx, lock: LockId, owner: &[u8], timeout: Millis, now: Now) -> Option<Ticket> {
    let handle = ctx.block()?;
    let ticket = NEXT_TICKET.get();
    NEXT_TICKET.set(ticket.wrapping_add(1));
    let client = Client {
        handle,
        lock,
        owner: Owner::from(owner),
        // The tick that is running now has begun already: never a part of it too early.
        until: (timeout > 0).then(|| now.tick_after(timeout).saturating_add(1)),
        connection: ctx.client_id(),
        allowed_at: user::changes(),
        outcome: None,
    };
    CLIENTS.with_borrow_mut(|clients| clients.add(ticket, client));
    Some(ticket)
}

/// Whether a blocked client's user may still acquire the lock: permissions can change while it
/// waits. The server looks at them when the command comes.
#[must_use]
pub fn may_still_acquire(ticket: Ticket, names: &Names, owner: &[u8]) -> bool {
    let connection = CLIENTS.with_borrow(|clients| {
        let client = clients.by_ticket.get(&ticket);
        let changed = client.filter(|client| client.allowed_at != user::changes());
        changed.map(|client| client.connection)
    });
    let Some(user) = connection.and_then(user::user_of) else {
        return true;
    };
    let (command, owner) = (string(b"fairlock.acquire"), string(owner));
    let may = |lock: &Str| {
        let user = User::named(&user);
        user.is_some_and(|user| user.may_run(&[&command, lock, &owner]))
    };
    let shared = names::unbraced(names.lock.as_slice());
    may(&names.lock) && shared.is_none_or(|lock| may(&string(lock)))
}

/// Ends a blocked client with an outcome. If it has ended already and was granted the lock, the
/// lock is taken back.
pub fn unblock(ctx: &Ctx, ticket: Ticket, outcome: Outcome) {
    match CLIENTS.with_borrow_mut(|clients| clients.end(ticket, outcome)) {
        Ok(()) => sweep::before_sleeping(ctx),
        Err(outcome) => Acquire::undelivered(ctx, outcome),
    }
}

/// Lets those go that have an outcome; the turn of the event loop ends.
pub fn let_go() {
    for ticket in CLIENTS.with_borrow_mut(|clients| std::mem::take(&mut clients.ended)) {
        let client = CLIENTS.with_borrow_mut(|clients| clients.remove(ticket));
        if let Some(Client {
            handle,
            outcome: Some(outcome),
            ..
        }) = client
        {
            handle.unblock(outcome);
        }
    }
}

/// Clients blocked in ACQUIRE.
#[derive(Debug)]
struct Acquire;

impl Blocking for Acquire {
    type Outcome = Outcome;

    fn reply(ctx: &Ctx, outcome: &Outcome) {
        match outcome {
            Outcome::Granted(grant) => {
                ctx.reply_integer(grant.token);
                sweep::delivered(ctx.client_id(), grant.clone());
            }
            Outcome::Nil => ctx.reply_nil(),
            Outcome::Refused(error) => ctx.reply_error(&error.to_string()),
            Outcome::Moved { slot, node } => ctx.reply_error(&moved(*slot, node)),
        }
    }

    fn undelivered(ctx: &Ctx, outcome: Outcome) {
        if let Outcome::Granted(grant) = outcome {
            sweep::take_back(ctx, grant);
        }
    }

    fn timed_out(ctx: &Ctx, id: Id) {
        if let Some(outcome) = leave(ctx, id, give_up_place) {
            Self::reply(ctx, &outcome);
        } else {
            ctx.reply_nil();
            stats::timed_out();
        }
    }

    fn disconnected(ctx: &Ctx, id: Id) {
        stats::disconnected();
        // Not the client's doing: the server lets all go while the cluster is down.
        let place = if ctx.cluster_is_down() {
            keep_place
        } else {
            give_up_place
        };
        if let Some(outcome) = leave(ctx, id, place) {
            Self::undelivered(ctx, outcome);
        }
    }
}

/// A client has ended by itself: what becomes of its place is to be decided, if it has not got its
/// outcome in this very turn.
fn leave(ctx: &Ctx, id: Id, place: fn(&Ctx, LockId, Owner, Ticket)) -> Option<Outcome> {
    let (ticket, client) = CLIENTS.with_borrow_mut(|clients| clients.remove_id(id))?;
    client.handle.discard();
    if client.outcome.is_none() {
        place(ctx, client.lock, client.owner, ticket);
    }
    client.outcome
}

/// The waiter stays in the queue, as one who asks again.
#[allow(clippy::needless_pass_by_value)] // As the one who gives it up.
fn keep_place(ctx: &Ctx, lock: LockId, owner: Owner, ticket: Ticket) {
    TABLE.with_borrow_mut(|table| table.mark_let_go(&lock, &owner, ticket));
    moving::freeze(ctx, lock);
}

fn give_up_place(ctx: &Ctx, lock: LockId, owner: Owner, ticket: Ticket) {
    TABLE.with_borrow_mut(|table| table.mark_gone(&lock, &owner, ticket));
    sweep::remove_gone(ctx, lock, owner);
}

/// Ends the clients whose time is up.
pub fn time_out_due(ctx: &Ctx, now: Now) {
    while let Some((ticket, lock, owner)) = CLIENTS.with_borrow_mut(|clients| {
        let (until, ticket) = *clients.by_until.first()?;
        let client = clients.by_ticket.get(&ticket)?;
        let place = (ticket, client.lock.clone(), Owner::clone(&client.owner));
        (until <= now.tick()).then_some(place)
    }) {
        unblock(ctx, ticket, Outcome::Nil);
        stats::timed_out();
        give_up_place(ctx, lock, owner, ticket);
    }
}

/// When the first client's time is up.
#[must_use]
pub fn next_timeout() -> Option<Tick> {
    CLIENTS.with_borrow(|clients| clients.by_until.first().map(|(until, _)| *until))
}

/// Number of clients blocked now.
#[must_use]
pub fn count() -> usize {
    CLIENTS.with_borrow(|clients| clients.by_ticket.len())
}
