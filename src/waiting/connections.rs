//! What is known of connections: the blocked clients, each under its ticket and by when its wait times out, and which
//! locks are bound to which connection. Nothing but data.
//!
//! A client that asks for a held lock is blocked under a ticket, by which the rules know it: the number of its
//! connection, which waits for one lock at a time. The wait ends in one of three ways: the client is unblocked with an
//! [`Outcome`]; its time is up; its connection closes. Each of them forgets the ticket first, so that no other can
//! follow.
//!
//! Time-outs are kept here, by the steady clock. The server's own time-outs go by the wall clock, and
//! would come an hour late if that is set back by an hour.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::RandomState;

use crate::error::Error;
use crate::lock::{Connection, Owner, Tick, Ticket, give_back};
use crate::server::block::{Handle, Socket};

use super::record::{Grant, LockId};

/// What a blocked client is told when it is unblocked.
pub enum Outcome {
    Granted(Grant),
    /// It was taken out of the queue, or its time is up.
    Nil,
    /// It cannot have the lock.
    Refused(Error),
}

/// The handler of clients that are blocked in ACQUIRE: [`clients`](super::clients) has its functions.
pub struct BlockedAcquire;

pub struct Client {
    pub handle: Handle<BlockedAcquire>,
    pub request: Request,
    /// When its time is up, if ever.
    pub until: Option<Tick>,
    /// What it is told when this iteration of the event loop ends.
    pub outcome: Option<Outcome>,
}

/// The request of a blocked client.
#[derive(Clone, Debug)]
pub struct Request {
    pub ticket: Ticket,
    pub lock: LockId,
    pub owner: Owner,
    /// Its time was up, and its wait goes on: its leaving the queue could not be written.
    pub goes_on: bool,
}

#[derive(Default)]
pub struct Blocked {
    by_ticket: HashMap<Ticket, Client, RandomState>,
    by_until: BTreeSet<(Tick, Ticket)>,
    /// Those with an outcome, in the order in which they got it.
    ended: Vec<Ticket>,
}

impl Blocked {
    pub fn add(&mut self, client: Client) {
        let ticket = client.request.ticket;
        if let Some(until) = client.until {
            self.by_until.insert((until, ticket));
        }
        self.by_ticket.insert(ticket, client);
    }

    /// Gives a client its outcome. Returns the outcome if the client has another already, or is gone.
    pub fn give_outcome(&mut self, ticket: Ticket, outcome: Outcome) -> Result<(), Outcome> {
        let client = self.by_ticket.get_mut(&ticket);
        let Some(client) = client.filter(|client| client.outcome.is_none()) else {
            return Err(outcome);
        };
        client.outcome = Some(outcome);
        self.ended.push(ticket);
        if let Some(until) = client.until.take() {
            self.by_until.remove(&(until, ticket));
        }
        Ok(())
    }

    /// A client's wait goes on until then, though its time was up.
    pub fn go_on(&mut self, ticket: Ticket, until: Tick) {
        if let Some(client) = self.by_ticket.get_mut(&ticket) {
            client.request.goes_on = true;
            if let Some(before) = client.until.replace(until) {
                self.by_until.remove(&(before, ticket));
            }
            self.by_until.insert((until, ticket));
        }
    }

    /// Those with an outcome, in the order in which they got it. They are still to be removed.
    pub fn take_ended(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.ended)
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<Client> {
        let client = self.by_ticket.remove(&ticket)?;
        if let Some(until) = client.until {
            self.by_until.remove(&(until, ticket));
        }
        give_back(&mut self.by_ticket);
        Some(client)
    }

    /// Forgets a client that has an outcome. The server may have ended its wait since, and it may wait again.
    pub fn remove_ended(&mut self, ticket: Ticket) -> Option<(Handle<BlockedAcquire>, Outcome)> {
        let client = self.by_ticket.get_mut(&ticket)?;
        let outcome = client.outcome.take()?;
        Some((self.remove(ticket)?.handle, outcome))
    }

    /// The request of the first client whose time is up.
    pub fn first_due(&self, now: Tick) -> Option<Request> {
        let (until, ticket) = *self.by_until.first()?;
        let client = self.by_ticket.get(&ticket)?;
        (until <= now).then(|| client.request.clone())
    }

    /// The requests of all clients that have no outcome yet.
    pub fn waiting(&self) -> Vec<Request> {
        let clients = self.by_ticket.values();
        let waiting = clients.filter(|client| client.outcome.is_none());
        waiting.map(|client| client.request.clone()).collect()
    }

    pub fn next_timeout(&self) -> Option<Tick> {
        self.by_until.first().map(|(until, _)| *until)
    }

    pub fn count(&self) -> usize {
        self.by_ticket.len()
    }
}

/// Hand-offs whose receivers may not have their tokens: until the lock is taken back, the receiver asks for something,
/// or its owner is told the token again. At most one for each connection that was replied.
#[derive(Default)]
pub struct HandOffs {
    /// Their tokens.
    pub tokens: BTreeSet<i64>,
    /// The last that was replied on each connection. An earlier one ended when the receiver asked again.
    pub replied: BTreeMap<Connection, Grant>,
    /// The sockets of connections that were asked for, until they close.
    pub sockets: BTreeMap<Connection, Socket>,
}

impl HandOffs {
    /// A hand-off needs no attention any more. False if it did not before.
    pub fn end(&mut self, token: i64) -> bool {
        self.tokens.remove(&token)
    }

    /// The client of a connection has asked for something.
    pub fn lives(&mut self, connection: Connection) {
        if let Some(grant) = self.replied.remove(&connection) {
            self.end(grant.token);
        }
    }
}

/// The holds that are bound to each connection: lock and holder.
#[derive(Default)]
pub struct Sessions {
    bound: BTreeMap<Connection, BTreeSet<(LockId, Owner)>>,
}

impl Sessions {
    /// A hold is bound to a connection.
    pub fn bind(&mut self, connection: Connection, lock: LockId, owner: Owner) {
        self.bound
            .entry(connection)
            .or_default()
            .insert((lock, owner));
    }

    /// A hold is not bound to a connection any more.
    pub fn unbind(&mut self, connection: Connection, lock: &LockId, owner: &Owner) {
        if let Some(holds) = self.bound.get_mut(&connection) {
            holds.remove(&(lock.clone(), Owner::clone(owner)));
            if holds.is_empty() {
                self.bound.remove(&connection);
            }
        }
    }

    /// The holds that are bound to a connection that closes. Each of them is still to be given up.
    pub fn take(&mut self, connection: Connection) -> BTreeSet<(LockId, Owner)> {
        self.bound.remove(&connection).unwrap_or_default()
    }

    /// Number of holds that are bound to connections; one that is bound to two counts twice.
    pub fn count(&self) -> usize {
        self.bound.values().map(BTreeSet::len).sum()
    }
}
