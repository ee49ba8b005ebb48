//! Asking for the lock: having it at once, or joining its queue.

use super::clock::{Millis, Wall};
use super::event::Event;
use super::parts::{Holds, Limit, Presence, Refusal, Terms, Ticket, Waiter};
use super::score;
use super::state::State;
use super::step::Step;

/// One request for the lock.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub owner: &'a [u8],
    pub terms: Terms,
    /// A holder that asks again keeps its lease if more than that is left of it.
    pub keeps_longer_lease: bool,
    /// How long a polling waiter may stay silent.
    pub patience: Millis,
    /// A holder that asks again keeps its hold count.
    pub once: bool,
    /// How it waits if it has to; `None` if it does not.
    pub wait: Option<WaitMode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Its connection is blocked until it is served.
    Blocked(Ticket),
    /// It asks again.
    Polling,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// 1 is the head.
    pub position: usize,
    /// Milliseconds after which asking again is worthwhile if no wake-up comes; at least 1.
    pub retry_after: Millis,
}

/// What has come of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The owner holds the lock, by this fencing token.
    Acquired(i64),
    Joined(Joined),
    /// It does not, and did not want to wait. If it is in the queue, it is as alive there as it was before it asked.
    Declined,
}

impl<S: State> Step<'_, S> {
    /// Takes the lock if `ask.owner` can have it now: it holds the lock already; or the holders tolerate it and
    /// no live waiter is ahead. Else the owner waits as it asked to: it joins the queue, or keeps its place there. If
    /// another request of the same owner is blocked, this one takes its place over.
    ///
    /// # Errors
    /// [`Refusal::NotALock`], [`Refusal::HoldsOverflow`], [`Refusal::OtherLimit`], [`Refusal::QueueFull`].
    pub fn ask(&mut self, ask: &Ask<'_>) -> Result<Outcome, Refusal> {
        if let Some(token) = self.acquire(ask)? {
            return Ok(Outcome::Acquired(token));
        }
        let queued = self.state.waiter(ask.owner);
        let is_full = queued.is_none() && self.state.waiting() >= self.rules.max_waiters;
        match ask.wait {
            Some(_) if is_full => Err(Refusal::QueueFull),
            Some(mode) => Ok(Outcome::Joined(self.join(ask, mode))),
            None => {
                if self.state.shared().is_some() {
                    self.settle(None);
                }
                Ok(Outcome::Declined)
            }
        }
    }

    /// Takes the lock if the owner can have it now, and returns its token. Otherwise only dead waiters have left the
    /// queue.
    fn acquire(&mut self, ask: &Ask<'_>) -> Result<Option<i64>, Refusal> {
        self.drop_ended(Some(ask.owner));
        match self.state.holds(ask.owner) {
            Holds::Unreadable => Err(Refusal::NotALock),
            Holds::Count(count) => {
                self.require_lock()?;
                self.hold_again(ask, count).map(Some)
            }
            Holds::None if self.fits(ask.terms.limit) => match self.take_in_turn(ask) {
                None => self.refuse(ask),
                acquired => Ok(acquired),
            },
            Holds::None => {
                // Checked only for an empty queue: if there are waiters, it was checked when the first one joined.
                if self.state.waiting() == 0 {
                    self.require_lock()?;
                }
                self.refuse(ask)
            }
        }
    }

    /// The owner cannot have the lock with this limit now. If it is the head of the queue, it may have joined
    /// with another limit, by which it fits. Settling then makes it a holder, and this request is one of a holder
    /// that asks again.
    ///
    /// An owner that asks is alive, even if its connection has closed or its deadline has passed: that was not dealt
    /// with yet. If it waits, it keeps its place, as it does in an exclusive lock.
    fn refuse(&mut self, ask: &Ask<'_>) -> Result<Option<i64>, Refusal> {
        if self.state.shared().is_none() {
            return Ok(None);
        }
        let queued = self.state.waiter(ask.owner);
        let is_back = queued.is_some_and(|waiter| !waiter.lives(self.now));
        if is_back && self.has_turn(ask.owner) {
            self.state.set_turn(None);
        }
        self.settle(is_back.then_some(ask.owner));
        match self.state.holds(ask.owner) {
            Holds::Count(count) => self.hold_again(ask, count).map(Some),
            Holds::None | Holds::Unreadable => Ok(None),
        }
    }

    fn has_turn(&mut self, owner: &[u8]) -> bool {
        let turn = self.state.turn();
        turn.is_some_and(|turn| *turn.owner == *owner)
    }

    /// Takes an available lock, unless a living waiter is ahead.
    fn take_in_turn(&mut self, ask: &Ask<'_>) -> Option<i64> {
        self.settle(Some(ask.owner));
        let head = self.state.waiter_at(0);
        let ahead = head.is_some_and(|(head, _)| *head != *ask.owner);
        if ahead || !self.fits(ask.terms.limit) {
            return None;
        }
        let token = self.grant(ask.owner, &ask.terms);
        self.leave_for_lock(ask.owner, ask.terms.limit);
        if !ask.terms.limit.is_exclusive() {
            // Those behind may be tolerated as well.
            self.settle(None);
        }
        Some(token)
    }

    /// An owner that takes the lock leaves the queue, if it was in it.
    pub(super) fn leave_for_lock(&mut self, owner: &[u8], limit: Limit) {
        let waiter = self.state.waiter(owner);
        if let Some(waiter) = waiter {
            self.replace_blocked(waiter);
            self.state.remove(owner);
        }
        self.refresh_head_score();
        self.state.emit(Event::Acquired {
            waited: waiter.map(|waiter| self.now.steady.saturating_sub(waiter.since)),
            shared: !limit.is_exclusive(),
        });
    }

    fn hold_again(&mut self, ask: &Ask<'_>, count: i64) -> Result<i64, Refusal> {
        // An exclusive holder may ask in any way. A shared holder may not change the limit that others rely on.
        let shared = self.state.shared().and_then(|shared| shared.get(ask.owner));
        if shared.is_some_and(|holder| holder.terms.limit != ask.terms.limit) {
            return Err(Refusal::OtherLimit);
        }
        if !ask.once {
            let more = count.checked_add(1).ok_or(Refusal::HoldsOverflow)?;
            self.state.set_holds(ask.owner, more);
        }
        // A holder that took the lock by a script has no token.
        let token = self.token_of(ask.owner).unwrap_or_else(|| {
            let token = self.next_token();
            self.state.set_token(ask.owner, token);
            token
        });
        if let Some(connection) = ask.terms.session {
            self.bind(ask.owner, connection, ask.terms.lease, ask.once);
        }
        // One without an end is longer than any.
        let end = self.lease_end_of(ask.owner);
        let lasts_longer = end.is_none_or(|end| end > self.now.after(ask.terms.lease));
        if !ask.keeps_longer_lease || !lasts_longer {
            self.extend(ask.owner, ask.terms.lease);
        }
        self.state.emit(Event::HeldAgain {
            token,
            once: ask.once,
        });
        Ok(token)
    }

    /// Sets a holder's lease anew. Returns the lease now set: it is not shorter than that of the holder's
    /// session, which could not renew it in time.
    pub(super) fn extend(&mut self, owner: &[u8], lease: Millis) -> Millis {
        let session = self.session_of(owner);
        let lease = session.map_or(lease, |session| session.lease.max(lease));
        self.set_lease_end(owner, self.now.after(lease));
        lease
    }

    /// Puts the owner in the queue, or lets it keep its place.
    fn join(&mut self, ask: &Ask<'_>, mode: WaitMode) -> Joined {
        let presence = match mode {
            WaitMode::Blocked(ticket) => Presence::Blocked(ticket),
            WaitMode::Polling => Presence::Polling,
        };
        let queued = self.state.waiter(ask.owner);
        let queued = queued.and_then(|waiter| Some((self.state.position(ask.owner)?, waiter)));
        let mut waiter = Waiter {
            presence,
            terms: ask.terms,
            patience: ask.patience,
            deadline: self.now.listening_after(ask.patience),
            score: queued.map_or_else(Wall::default, |(_, waiter)| waiter.score),
            since: queued.map_or(self.now.steady, |(_, waiter)| waiter.since),
        };
        let index = if let Some((index, before)) = queued {
            self.replace_blocked(before);
            waiter.score = self.score_of_asking(&waiter, index);
            self.state.set_waiter(ask.owner, waiter);
            index
        } else {
            let index = self.state.waiting();
            let ahead = score::ahead(self.lease_left(), ask.patience, index);
            waiter.score = self.now.after(ahead);
            self.state.push(ask.owner, waiter);
            self.state.emit(Event::Enqueued);
            index
        };
        // A client that blocks is blocked after the step, and could not receive the lock in it. Where a long row of
        // dead waiters was ahead, so that the lock is free still, the lock is due at once.
        let blocks = matches!(mode, WaitMode::Blocked(_));
        self.settle(blocks.then_some(ask.owner));
        Joined {
            position: index.saturating_add(1),
            retry_after: self.retry_after(ask.patience),
        }
    }

    /// Tells a waiter's blocked request, if it has one, that its place is taken over.
    fn replace_blocked(&mut self, waiter: Waiter) {
        if let Presence::Blocked(ticket) = waiter.presence {
            self.state.emit(Event::TakenOver { ticket });
        }
    }

    /// The time until the lock may be free: until the lease or the turn ends. At most half of the patience, so
    /// that asking again is a sign of life in time.
    fn retry_after(&mut self, patience: Millis) -> Millis {
        let now = self.now;
        let until_free = match self.state.turn() {
            Some(turn) => Some(now.left_until(turn.until)),
            None => self.first_lease_end().map(|end| end.since(now.wall())),
        };
        until_free.unwrap_or(Millis::MAX).min(patience / 2).max(1)
    }
}
