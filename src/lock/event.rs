//! What happens in a step.

use super::parts::{Connection, Owner, Ticket};

/// One thing that happened in a step. `keyspace` raises a key event for some of them; `waiting` carries them out
/// in their order, and counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The owner that asked became the holder.
    Acquired {
        /// Microseconds it was queued, if it was.
        waited: Option<u64>,
        /// It may hold the lock together with others.
        shared: bool,
    },
    /// The holder asked again.
    HeldAgain {
        /// The fencing token that it was given.
        token: i64,
        /// It asked with ONCE: its hold count is what it was.
        once: bool,
    },
    /// The lock was handed to a blocked waiter: reply with its token.
    Granted {
        /// The blocked request to reply to.
        ticket: Ticket,
        /// The new holder.
        owner: Owner,
        /// Its fencing token.
        token: i64,
        /// The connection that the lock is bound to.
        session: Option<Connection>,
        /// Microseconds it was queued.
        waited: u64,
        /// It may hold the lock together with others.
        shared: bool,
    },
    /// The holder gave the lock up, or it was taken from the holder.
    Released {
        /// When it became a holder, if that is known here and it could hold the lock together with others: by
        /// the steady clock in microseconds.
        since: Option<u64>,
    },
    /// The lease has ended of one of those that held the lock together.
    LeaseEnded {
        /// When it became a holder, if that is known here.
        since: Option<u64>,
    },
    /// An owner joined the queue.
    Enqueued,
    /// A second connection has taken a blocked waiter's place: reply with the error.
    TakenOver {
        /// The blocked request that lost its place.
        ticket: Ticket,
    },
    /// A waiter was taken out of the queue by CANCEL. If it is blocked, reply nil.
    Cancelled {
        /// The blocked request to reply to.
        ticket: Option<Ticket>,
    },
    /// A blocked waiter left the queue: its time was up, or its connection has closed. It has been
    /// told, or cannot be.
    Left {
        /// The waiter.
        owner: Owner,
    },
    /// A polling waiter should ask again: publish its wake-up.
    WakeUp {
        /// The waiter to wake.
        owner: Owner,
    },
    /// A dead waiter was dropped.
    Reaped {
        /// The waiter that was dropped.
        owner: Owner,
    },
    /// A hold is bound to a connection: tell when it closes.
    Bound {
        /// The connection.
        connection: Connection,
        /// The holder.
        owner: Owner,
    },
    /// It is not bound to the connection any more.
    Unbound {
        /// The connection.
        connection: Connection,
        /// The holder.
        owner: Owner,
    },
}
