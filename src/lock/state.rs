//! What one lock is made of, as the rules see it.

use std::rc::Rc;

use super::session::Session;

/// Milliseconds: a duration, or an instant of the server's clock since the Unix epoch.
pub type Millis = u64;

/// Whoever may hold or wait: any bytes.
pub type Owner = Rc<[u8]>;

/// Names one blocked request of this server run. A connection that asks again has a new one.
pub type Ticket = u64;

/// Names one connection of this server run.
pub type Connection = u64;

/// An instant of the steady clock, in milliseconds since some moment of this server run. Wall
/// clocks step; what is only counted here, and stored in no key, is counted by this one.
pub type Tick = u64;

/// An instant of the listening clock, in milliseconds: the steady clock less the time in which the server
/// did not listen to its clients, because it stood still or because writes were paused. Turns and the
/// deadlines of polling waiters are counted by it, for a waiter can only ask a server that listens.
pub type Heard = u64;

/// The server's clocks, read once for a whole step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock: microseconds since the Unix epoch. Keys expire by it. It can step.
    pub micros: u64,
    /// The steady clock in microseconds.
    pub steady: u64,
    /// How far the listening clock is behind the steady clock: for how long the server has not listened.
    pub deaf: Millis,
    /// Everything that clients sent before this instant has been read.
    pub heard: Heard,
}

impl Now {
    /// An instant at which both clocks show these milliseconds, as tests like to write it.
    #[must_use]
    pub fn from_millis(millis: Millis) -> Self {
        Self {
            micros: millis.saturating_mul(1000),
            steady: millis.saturating_mul(1000),
            deaf: 0,
            heard: millis,
        }
    }

    /// So many milliseconds later, with the server listening all the time; for tests and tools.
    #[must_use]
    pub fn later(self, time: Millis) -> Self {
        let later = Self {
            deaf: self.deaf,
            ..self.after_stall(time)
        };
        Self {
            heard: later.listening(),
            ..later
        }
    }

    /// So many milliseconds later, in which the server stood still.
    #[must_use]
    pub fn after_stall(self, time: Millis) -> Self {
        Self {
            micros: self.micros.saturating_add(time.saturating_mul(1000)),
            steady: self.steady.saturating_add(time.saturating_mul(1000)),
            deaf: self.deaf.saturating_add(time),
            heard: self.heard,
        }
    }

    /// The wall clock in whole milliseconds.
    #[must_use]
    pub fn millis(self) -> Millis {
        self.micros / 1000
    }

    /// `duration` from now, by the wall clock.
    #[must_use]
    pub fn after(self, duration: Millis) -> Millis {
        self.millis().saturating_add(duration)
    }

    /// The steady clock in whole milliseconds.
    #[must_use]
    pub fn tick(self) -> Tick {
        self.steady / 1000
    }

    /// `duration` from now, by the steady clock.
    #[must_use]
    pub fn tick_after(self, duration: Millis) -> Tick {
        self.tick().saturating_add(duration)
    }

    /// The listening clock.
    #[must_use]
    pub fn listening(self) -> Heard {
        self.tick().saturating_sub(self.deaf)
    }

    /// `duration` from now, by the listening clock.
    #[must_use]
    pub fn listening_after(self, duration: Millis) -> Heard {
        self.listening().saturating_add(duration)
    }

    /// What is left until an instant of the listening clock.
    #[must_use]
    pub fn left_until(self, instant: Heard) -> Millis {
        instant.saturating_sub(self.listening())
    }

    /// Whether an instant of the listening clock is over, and all that was sent before it has been read.
    #[must_use]
    pub fn is_over(self, instant: Heard) -> bool {
        instant <= self.heard
    }

    /// When an instant of the listening clock is by the steady clock, if the server listens until then.
    #[must_use]
    pub fn tick_at(self, instant: Heard) -> Tick {
        instant.saturating_add(self.deaf)
    }
}

/// How often an owner holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It is not the holder.
    None,
    /// It is the holder, with this hold count, from 1.
    Count(i64),
    /// There is something of this name that is no hold count.
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
    /// Whether the waiter is known by scripts only: it joined by one, or was found in the keys.
    #[must_use]
    pub fn is_scripted(self) -> bool {
        matches!(self, Self::Found | Self::Asked)
    }
}

/// A waiter's place in the queue, beyond the order itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// How this server sees it.
    pub presence: Presence,
    /// The lease it asked for, used when the lock is handed to it.
    pub lease: Millis,
    /// How long it may stay silent; 0 if it was found, when its score is all that is known.
    pub patience: Millis,
    /// The connection that the lock shall be bound to when it is handed to it.
    pub session: Option<Connection>,
    /// When a waiter that asked here counts as dead. No key tells; other servers go by the score.
    pub deadline: Heard,
    /// The instant in the keys after which scripts, and servers that know nothing else of the
    /// waiter, count it as dead (see [`super::score`]).
    pub score: Millis,
    /// When it joined, by the steady clock in microseconds.
    pub since: u64,
}

impl Waiter {
    /// A waiter that was found in the keys. It takes the lock itself, so its lease is its own affair.
    #[must_use]
    pub fn found(score: Millis, now: Now) -> Self {
        Self {
            presence: Presence::Found,
            lease: 0,
            patience: 0,
            session: None,
            deadline: 0,
            score,
            since: now.steady,
        }
    }

    /// Whether it lives for sure: its connection is blocked here, or it asked here in time.
    #[must_use]
    pub fn lives(&self, now: Now) -> bool {
        match self.presence {
            Presence::Blocked(_) => true,
            Presence::Polling | Presence::Asked => !now.is_over(self.deadline),
            Presence::Found | Presence::Gone => false,
        }
    }

    /// The ticket under which its connection is blocked here, if it is.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match self.presence {
            Presence::Blocked(ticket) => Some(ticket),
            _ => None,
        }
    }
}

/// The head's time to come and take the free lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The polling waiter whose turn it is.
    pub owner: Owner,
    /// When the polling waiters right behind it are woken, if it is still silent; none once they are.
    pub wakes_next: Option<Heard>,
    /// When the turn ends.
    pub until: Heard,
}

/// One thing that happened in a step, for the server to carry out, announce and count. In order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The owner that asked became the holder.
    Acquired {
        /// Microseconds it was queued, if it was.
        waited: Option<u64>,
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
    },
    /// The holder gave the lock up, or it was taken from the holder.
    Released,
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
    Left,
    /// A polling waiter should ask again: publish its wake-up.
    WakeUp {
        /// Whom to wake.
        owner: Owner,
    },
    /// A dead waiter was dropped.
    Reaped {
        /// Who was dropped.
        owner: Owner,
    },
    /// The lock is bound to a connection: tell when it closes.
    Bound {
        /// The connection.
        connection: Connection,
    },
    /// The lock is not bound to a connection any more.
    Unbound {
        /// The connection.
        connection: Connection,
    },
}

/// The state of one lock, wherever it is stored.
///
/// Implementations only store and fetch; every decision is in [`super::rules`] and
/// [`super::turn`]. None of the queue's methods may cost more than the logarithm of its length.
/// An owner is in the queue at most once, and has a score exactly while it is queued; whatever
/// foreign writers did to that has been repaired before a step begins.
pub trait State {
    /// Whether anyone holds the lock.
    fn is_held(&mut self) -> bool;
    /// When the lock frees itself; `None` if it is free or has no lease.
    fn lease_end(&mut self) -> Option<Millis>;
    /// How often `owner` holds the lock.
    fn holds(&mut self, owner: &[u8]) -> Holds;
    /// Whether what is held is a lock: it has one holder, with a hold count.
    fn is_lock(&mut self) -> bool {
        true
    }
    /// Makes `owner` the holder of a free lock, once, by this fencing token.
    fn take(&mut self, owner: &[u8], token: i64);
    /// Makes `owner` the holder of a free lock without a token, or changes its hold count.
    fn set_holds(&mut self, owner: &[u8], holds: i64);
    /// Sets when the lock frees itself. The lock is held.
    fn set_lease_end(&mut self, at: Millis);
    /// Frees the lock, whoever holds it.
    fn free(&mut self);
    /// The lock is about to be freed by a script, which counts down to 0 first: others may listen for that.
    fn count_down(&mut self) {}

    /// The holder's fencing token; none if the lock is free or was taken by a script.
    fn token(&mut self) -> Option<i64>;
    /// Gives the holder, which has none, a fencing token.
    fn set_token(&mut self, token: i64);
    /// The greatest token that this lock may have had: given by this server run to any lock, or kept for
    /// this one; 0 if there is none. It keeps tokens growing where the clock has stepped back.
    fn last_token(&mut self) -> i64;

    /// Number of waiters.
    fn waiting(&mut self) -> usize;
    /// Number of waiters that are known by scripts only.
    fn scripted(&mut self) -> usize;
    /// The waiter at a 0-based position.
    fn nth(&mut self, index: usize) -> Option<Owner>;
    /// 0-based position of a waiter.
    fn position(&mut self, owner: &[u8]) -> Option<usize>;
    /// A waiter as this server sees it.
    fn waiter(&mut self, owner: &[u8]) -> Option<Waiter>;
    /// Owner and waiter at a 0-based position.
    fn waiter_at(&mut self, index: usize) -> Option<(Owner, Waiter)> {
        let owner = self.nth(index)?;
        let waiter = self.waiter(&owner)?;
        Some((owner, waiter))
    }
    /// Changes how this server sees a waiter, but for its score; no effect on others.
    fn set_waiter(&mut self, owner: &[u8], waiter: Waiter);
    /// Adds `owner` at the end of the queue, with its score.
    fn push(&mut self, owner: &[u8], waiter: Waiter);
    /// Takes `owner` out of the queue, score and all.
    fn remove(&mut self, owner: &[u8]);
    /// Takes `owner` out of the queue, which it leaves by a script.
    fn withdraw(&mut self, owner: &[u8]) {
        self.remove(owner);
    }
    /// Takes many waiters out at once.
    fn remove_all(&mut self, owners: &[Owner]) {
        for owner in owners {
            self.remove(owner);
        }
    }
    /// Sets the score of an owner in the queue.
    fn set_score(&mut self, owner: &[u8], at: Millis);
    /// Lessens the score of each waiter by what `lessening` says for its 0-based position. Walks
    /// the queue.
    fn lessen_scores(&mut self, lessening: &dyn Fn(usize) -> Millis);

    /// Whose turn it is, if the lock is free and a polling waiter was woken.
    fn turn(&mut self) -> Option<Turn>;
    /// Sets or ends the turn.
    fn set_turn(&mut self, turn: Option<Turn>);

    /// The connections that the lock is bound to.
    fn session(&mut self) -> &mut Option<Session>;

    /// Takes note of what happened.
    fn emit(&mut self, event: Event);
}
