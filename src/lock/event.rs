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
        token: i64,
        /// It asked with ONCE: its hold count is what it was.
        once: bool,
    },
    /// The lock was handed to a blocked waiter: reply with its token.
    Granted {
        ticket: Ticket,
        owner: Owner,
        token: i64,
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
    TakenOver { ticket: Ticket },
    /// A waiter was taken out of the queue by CANCEL. If it is blocked, reply nil.
    Cancelled { ticket: Option<Ticket> },
    /// A blocked waiter left the queue: its time was up, or its connection has closed. It has been
    /// told, or cannot be.
    Left { owner: Owner },
    /// A polling waiter should ask again: publish its wake-up.
    WakeUp { owner: Owner },
    /// A dead waiter was dropped.
    Reaped { owner: Owner },
    /// A hold is bound to a connection: tell when it closes.
    Bound {
        connection: Connection,
        owner: Owner,
    },
    /// It is not bound to the connection any more.
    Unbound {
        connection: Connection,
        owner: Owner,
    },
}
