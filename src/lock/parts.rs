//! What a lock is made of, as the rules see it: owners, holders, waiters, turns, sessions. And the limits that the
//! rules apply.

use std::rc::Rc;

use super::clock::{Heard, Millis, Now, Wall};

/// An owner may hold or wait; it is named by any bytes.
pub type Owner = Rc<[u8]>;

/// Names one connection of this server run.
pub type Connection = u64;

/// Names a blocked request: the connection that waits, for one lock at a time.
pub type Ticket = Connection;

/// The limits that apply to a step, from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Time a polling waiter has to take the lock once it is its turn.
    pub turn: Millis,
    /// Patience of a waiter that was found in the keys without a deadline.
    pub patience: Millis,
    /// By how much the clocks of servers that follow each other may differ.
    pub clock_skew: Millis,
    /// Most waiters a lock may have.
    pub max_waiters: usize,
    /// Until then, waiters that were found in the keys count as alive: their server has just
    /// started, and they may be on their way back.
    pub grace: Heard,
    /// Whether Redisson's scripts are steps of these rules, so that each of its waiters that lives is seen
    /// asking when it is woken. Else Lua runs them, and what it does are changes by another client.
    pub intercepts: bool,
}

/// Why a step changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotHeld,
    OtherToken,
    QueueFull,
    /// The key holds something other than a lock: it is application data.
    NotALock,
    /// The key has no expiry. Every holder sets one, so the key may be application data.
    NoLease,
    HoldsOverflow,
    /// The owner holds the lock together with others, and asks for it in another way.
    OtherLimit,
    MemoryFull,
    /// Some of the lock's keys may be where this server cannot see them.
    Moving,
}

/// How many holders an owner tolerates at most while it holds the lock, itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit(u32);

impl Limit {
    pub const EXCLUSIVE: Self = Self(1);
    /// Any number.
    pub const NONE: Self = Self(u32::MAX);

    pub fn is_exclusive(self) -> bool {
        self == Self::EXCLUSIVE
    }

    /// As commands and keys show it: 0 for any number.
    pub fn shown(self) -> u32 {
        if self == Self::NONE { 0 } else { self.0 }
    }

    /// Reads what [`Self::shown`] says.
    pub fn read(shown: u32) -> Self {
        if shown == 0 { Self::NONE } else { Self(shown) }
    }

    pub fn tolerates(self, holders: usize) -> bool {
        u32::try_from(holders).is_ok_and(|holders| holders <= self.0)
    }
}

/// How an owner wants to hold the lock. A waiter brings it to its hold, and a hold keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time until the lock frees itself, from the moment it is acquired.
    pub lease: Millis,
    /// The connection that the lock shall be bound to.
    pub session: Option<Connection>,
    pub limit: Limit,
}

impl Terms {
    /// Of an owner that is only known from the keys. A waiter names its lease when it takes the lock itself.
    pub const UNKNOWN: Self = Self {
        lease: 0,
        session: None,
        limit: Limit::EXCLUSIVE,
    };
}

/// The connections that one holder's lock is bound to (see [`super::session`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub owner: Owner,
    /// The lease that each renewal gives.
    pub lease: Millis,
    /// The connections and their holds, never empty.
    pub holders: Vec<(Connection, i64)>,
}

/// How often an owner holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    None,
    /// It is the holder, with this hold count, from 1.
    Count(i64),
    /// A field has this name, but its value is not a hold count.
    Unreadable,
}

/// How this server sees a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Its connection is blocked here, under this ticket: alive as long as the connection is.
    Blocked(Ticket),
    /// It was blocked here and its connection has closed: to be removed at once.
    Gone,
    /// It asked with ENQUEUE since this server started, or was woken, and asks again when woken. Alive
    /// until its deadline.
    Polling,
    /// Its place was found in the keys: a Redisson client, or an owner from before a restart.
    /// Alive until its deadline; it may never answer.
    Found,
    /// A Redisson client that was seen asking. Alive until its deadline.
    Asked,
}

impl Presence {
    /// Whether no command of the waiter was seen here: it joined by a script, or was found in the keys.
    pub fn is_scripted(self) -> bool {
        matches!(self, Self::Found | Self::Asked)
    }
}

/// A waiter's place in the queue, beyond the order itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub presence: Presence,
    pub terms: Terms,
    /// How long it may stay silent; 0 if it was found, when its score is all that is known.
    pub patience: Millis,
    /// When a waiter that asked here counts as dead. It is in no key; other servers use the score.
    pub deadline: Heard,
    /// The instant in the keys after which scripts, and servers that know nothing else of the
    /// waiter, count it as dead (see [`super::score`]).
    pub score: Wall,
    /// When it joined, by the steady clock in microseconds.
    pub since: u64,
}

impl Waiter {
    /// A waiter that was found in the keys. Its limit is in no key: it counts as exclusive until it asks again.
    pub fn found(score: Wall, now: Now) -> Self {
        Self {
            presence: Presence::Found,
            terms: Terms::UNKNOWN,
            patience: 0,
            deadline: Heard::default(),
            score,
            since: now.steady,
        }
    }

    /// Whether it lives for sure: its connection is blocked here, or it asked here in time.
    pub fn lives(&self, now: Now) -> bool {
        match self.presence {
            Presence::Blocked(_) => true,
            Presence::Polling | Presence::Asked => !now.is_over(self.deadline),
            Presence::Found | Presence::Gone => false,
        }
    }

    /// The ticket under which its connection is blocked here, if it is.
    pub fn ticket(&self) -> Option<Ticket> {
        match self.presence {
            Presence::Blocked(ticket) => Some(ticket),
            _ => None,
        }
    }
}

/// The time that a polling head has to take a lock that it can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub owner: Owner,
    /// When the polling waiters right behind it are woken, if it is still silent; none once they are.
    pub wakes_next: Option<Heard>,
    pub until: Heard,
}
