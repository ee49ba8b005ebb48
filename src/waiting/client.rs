//! The blocked clients.
//!
//! A client that asks for a held lock is blocked under a new ticket, by which the rules know it.
//! It ends in one of three ways, and each of them forgets the ticket first, so that none of the
//! others can follow: it is unblocked with an [`Outcome`]; its time is up; its connection closes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::error::Error;
use crate::lock::{Owner, Ticket, rules};
use crate::server::block::{Blocking, Handle, Id};
use crate::server::{Ctx, string};

use super::table::LockId;
use super::{TABLE, stats, step, sweep};

/// What a blocked client is told when it is unblocked.
#[derive(Debug)]
pub enum Outcome {
    /// It holds the lock.
    Granted {
        /// The lock.
        lock: LockId,
        /// The owner it asked for.
        owner: Owner,
        /// The fencing token.
        token: i64,
    },
    /// It was taken out of the queue.
    Nil,
    /// It cannot have the lock.
    Refused(Error),
}

#[derive(Debug)]
struct Client {
    handle: Handle<Acquire>,
    lock: LockId,
    owner: Owner,
}

#[derive(Debug, Default)]
struct Clients {
    by_ticket: HashMap<Ticket, Client>,
    tickets: HashMap<Id, Ticket>,
}

thread_local! {
    static CLIENTS: RefCell<Clients> = RefCell::new(Clients::default());
    static NEXT_TICKET: Cell<Ticket> = const { Cell::new(1) };
}

impl Clients {
    fn add(&mut self, ticket: Ticket, client: Client) {
        self.tickets.insert(client.handle.id(), ticket);
        self.by_ticket.insert(ticket, client);
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Client> {
        let client = self.by_ticket.remove(&ticket)?;
        self.tickets.remove(&client.handle.id());
        Some(client)
    }

    fn remove_id(&mut self, id: Id) -> Option<(Ticket, Client)> {
        let ticket = self.tickets.remove(&id)?;
        Some((ticket, self.by_ticket.remove(&ticket)?))
    }
}

/// Blocks the calling client on a lock for `timeout` milliseconds (0: without limit). `None` if
/// the server cannot; nothing has been replied then.
#[must_use]
pub fn block(ctx: &Ctx, lock: LockId, owner: &[u8], timeout: u64) -> Option<Ticket> {
    let handle = ctx.block(timeout)?;
    let ticket = NEXT_TICKET.get();
    NEXT_TICKET.set(ticket.wrapping_add(1));
    let client = Client {
        handle,
        lock,
        owner: Owner::from(owner),
    };
    CLIENTS.with_borrow_mut(|clients| clients.add(ticket, client));
    Some(ticket)
}

/// Ends a blocked client with an outcome. If it has ended already and was granted the lock, the
/// lock is taken back.
pub fn unblock(ctx: &Ctx, ticket: Ticket, outcome: Outcome) {
    match CLIENTS.with_borrow_mut(|clients| clients.remove(ticket)) {
        Some(client) => client.handle.unblock(outcome),
        None => Acquire::undelivered(ctx, outcome),
    }
}

/// Clients blocked in ACQUIRE.
#[derive(Debug)]
struct Acquire;

impl Blocking for Acquire {
    type Outcome = Outcome;

    fn reply(ctx: &Ctx, outcome: &Outcome) {
        match outcome {
            Outcome::Granted { lock, owner, token } => {
                ctx.reply_integer(*token);
                sweep::delivered(ctx.client_id(), lock.clone(), Owner::clone(owner), *token);
            }
            Outcome::Nil => ctx.reply_nil(),
            Outcome::Refused(error) => ctx.reply_error(&error.to_string()),
        }
    }

    fn undelivered(ctx: &Ctx, outcome: Outcome) {
        if let Outcome::Granted { lock, owner, token } = outcome {
            sweep::take_back(ctx, lock, owner, token);
        }
    }

    fn timed_out(ctx: &Ctx, id: Id) {
        ctx.reply_nil();
        stats::timed_out();
        let Some((ticket, client)) = CLIENTS.with_borrow_mut(|clients| clients.remove_id(id))
        else {
            return;
        };
        client.handle.discard();
        if !ctx.select_db(client.lock.db) {
            return;
        }
        // If a key has another type by now there is no queue to leave; the place goes with the
        // client.
        let left = step(ctx, string(&client.lock.name), |state, rules, now| {
            rules::leave(state, &client.owner, ticket, rules, now);
            Ok(())
        });
        if left.is_err() {
            TABLE.with_borrow_mut(|table| table.mark_gone(&client.lock, &client.owner, ticket));
            sweep::remove_gone(ctx, client.lock, client.owner);
        }
    }

    fn disconnected(ctx: &Ctx, id: Id) {
        let Some((ticket, client)) = CLIENTS.with_borrow_mut(|clients| clients.remove_id(id))
        else {
            return;
        };
        client.handle.discard();
        stats::disconnected();
        TABLE.with_borrow_mut(|table| table.mark_gone(&client.lock, &client.owner, ticket));
        sweep::remove_gone(ctx, client.lock, client.owner);
    }
}

/// Number of clients blocked now.
#[must_use]
pub fn count() -> usize {
    CLIENTS.with_borrow(|clients| clients.by_ticket.len())
}
