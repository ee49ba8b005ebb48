//! The steps of Redisson's fair-lock scripts, where they run natively.
//!
//! A script is called with its client's own clock, and works on the holder, the queue and the scores.
//! As a step of these rules it does the same to the holder and the queue, and replies the same, with
//! these differences:
//!
//! - a script drops every head whose score has passed by its client's clock. Here that drops only a waiter
//!   of which nothing but its score is known, never one that is known to be alive;
//! - a script that takes the lock, or leaves the queue, lowers the scores of other waiters. Here scores
//!   stay (see [`super::score`]), and replies that a script computes from scores are computed from positions;
//! - a script that finds the lock free during another waiter's turn replies 0, and its client asks again at
//!   once, in a busy loop. Here the reply is what is left of that turn.
//!
//! Recognising scripts, their arguments and replies, and the latch that makes an unlock safe to
//! repeat are done by the server-facing side.
//!
//! The scripts know exclusive locks only. To them a lock with several holders is held until the last lease ends.

use super::clock::{Millis, Wall};
use super::event::Event;
use super::parts::{Holds, Limit, Owner, Presence, Refusal, Waiter};
use super::score;
use super::state::State;
use super::step::Step;

/// A call of a script that takes the lock.
#[derive(Clone, Copy, Debug)]
pub struct TryLock<'a> {
    pub owner: &'a [u8],
    pub lease: Millis,
    /// The time by the client's clock.
    pub client: Wall,
    /// How it waits; `None` if it does not.
    pub wait: Option<ScriptWait>,
    pub memory_is_full: bool,
}

/// How a script joins the queue.
#[derive(Clone, Copy, Debug)]
pub struct ScriptWait {
    pub patience: Millis,
    pub sleep: Sleep,
}

/// For how long a script tells a waiter to sleep: until asking again is worthwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// When the head's time is over, however far behind it the waiter is (before 3.11.1).
    BehindHead,
    /// When the time of the waiter before it is over.
    BehindPrevious,
    /// For a newcomer as [`Sleep::BehindPrevious`]; for a waiter that asks again, when the lease ends (since
    /// 3.32.0).
    Lease,
}

/// What has come of a call that takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The owner holds the lock, or holds it once more.
    Acquired,
    /// It does not, and does not wait.
    Refused,
    /// It waits, and is told to sleep for this time.
    Waits(i64),
}

/// What has come of a call that gives a hold up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlocked {
    NotHeld,
    HeldStill,
    /// The lock is free, or was.
    Freed,
}

impl<S: State> Step<'_, S> {
    /// Takes the lock if it is free and no living waiter is ahead, or if the owner holds it already; else
    /// waits, if the script does.
    ///
    /// # Errors
    /// [`Refusal::MemoryFull`], [`Refusal::NotALock`], [`Refusal::HoldsOverflow`]; nothing has
    /// changed then.
    pub fn try_lock(&mut self, call: &TryLock<'_>) -> Result<Tried, Refusal> {
        self.drop_ended(Some(call.owner));
        let holds = match self.state.holds(call.owner) {
            Holds::Unreadable => return Err(Refusal::NotALock),
            Holds::Count(count) => Some(count.checked_add(1).ok_or(Refusal::HoldsOverflow)?),
            Holds::None => None,
        };
        if call.memory_is_full && self.needs_memory(call, holds) {
            return Err(Refusal::MemoryFull);
        }
        self.drop_dead(Some(call.owner), call.client);
        self.settle(Some(call.owner));
        if let Some(holds) = holds {
            self.state.set_holds(call.owner, holds);
            self.extend(call.owner, call.lease);
            return Ok(Tried::Acquired);
        }
        let head = self.state.waiter_at(0);
        let is_next = head.is_none_or(|(head, _)| *head == *call.owner);
        if is_next && !self.state.is_held() {
            self.take_by_script(call);
            return Ok(Tried::Acquired);
        }
        let Some(wait) = call.wait else {
            self.settle(None);
            return Ok(Tried::Refused);
        };
        let sleep = self.join_by_script(call, wait);
        self.settle(None);
        Ok(Tried::Waits(sleep))
    }

    fn take_by_script(&mut self, call: &TryLock<'_>) {
        // A session that is still known here was lost without an event.
        self.end_session();
        self.state.set_holds(call.owner, 1);
        let end = self.now.after(call.lease);
        self.state.set_lease_end(end);
        self.state.set_turn(None);
        self.leave_for_lock(call.owner, Limit::EXCLUSIVE);
    }

    /// Whether the call would write more than it deletes.
    fn needs_memory(&mut self, call: &TryLock<'_>, holds: Option<i64>) -> bool {
        let is_free = !self.state.is_held();
        let is_queued = self.state.position(call.owner).is_some();
        let joins = |wait: ScriptWait| wait.sleep == Sleep::BehindHead || !is_queued;
        holds.is_some()
            || call.wait.is_some_and(joins)
            || is_free
                && self
                    .first_alive(call)
                    .is_none_or(|head| *head == *call.owner)
    }

    /// The head once the dead ahead of it are dropped.
    fn first_alive(&mut self, call: &TryLock<'_>) -> Option<Owner> {
        let clock = call.client.max(self.now.wall());
        for index in 0..self.state.waiting() {
            let (owner, waiter) = self.state.waiter_at(index)?;
            let leaves = waiter.presence == Presence::Gone || self.is_dead(&owner, &waiter, clock);
            if *owner == *call.owner || !leaves {
                return Some(owner);
            }
        }
        None
    }

    /// Puts the owner in the queue, or lets it keep its place. Returns its sleep.
    fn join_by_script(&mut self, call: &TryLock<'_>, wait: ScriptWait) -> i64 {
        let (owner, patience) = (call.owner, wait.patience);
        let queued = self.state.position(owner);
        let index = queued.unwrap_or_else(|| self.state.waiting());
        let sleep = self.sleep_of(call, wait, queued);
        let ahead = score::ahead(self.lease_left(), patience, index);
        let joined_at = call.client.after(ahead);
        match self.state.waiter(owner) {
            None => {
                let mut newcomer = Waiter::found(joined_at, self.now);
                newcomer.patience = patience;
                // It does not sleep for the time that it is told: it subscribes, and asks again.
                let waiter = self.asked(newcomer, 0);
                self.state.push(owner, waiter);
                self.state.emit(Event::Enqueued);
            }
            // Nothing changes if a blocked connection waits for the same owner.
            Some(waiter) if waiter.ticket().is_some() => (),
            Some(mut waiter) => {
                waiter.patience = patience;
                waiter.score = match wait.sleep {
                    Sleep::BehindHead => joined_at,
                    _ => self.score_of_asking(&waiter, index),
                };
                let sleeps = Millis::try_from(sleep).unwrap_or(0);
                let waiter = self.asked(waiter, sleeps);
                self.state.set_waiter(owner, waiter);
            }
        }
        sleep
    }

    /// A waiter that has asked by a script, and sleeps for `sleeps`, or until the lease ends. It asks again within its
    /// patience after that, or before its score, if that is later: `tryLock(5, SECONDS)` passes 5 as milliseconds.
    fn asked(&mut self, mut waiter: Waiter, sleeps: Millis) -> Waiter {
        let sleeps = sleeps.max(self.lease_left());
        let silence = sleeps.saturating_add(waiter.patience);
        let silence = silence.max(waiter.score.since(self.now.wall()));
        waiter.presence = Presence::Asked;
        // Redisson's locks are exclusive.
        waiter.terms.limit = Limit::EXCLUSIVE;
        waiter.deadline = self.now.listening_after(silence);
        waiter
    }

    /// For how long a waiter is to sleep; `index` if it is in the queue already.
    fn sleep_of(&mut self, call: &TryLock<'_>, wait: ScriptWait, index: Option<usize>) -> i64 {
        let sleep = match (wait.sleep, index) {
            (Sleep::BehindHead, Some(0)) | (Sleep::Lease, Some(_)) => self.lease_as_sleep(),
            (Sleep::BehindHead, _) => self.sleep_behind(0, call.client),
            (Sleep::BehindPrevious, Some(index)) => {
                let ahead = score::ahead(self.lease_left(), wait.patience, index);
                whole(ahead.saturating_sub(wait.patience))
            }
            (_, None) => {
                let last = self.state.waiting().saturating_sub(1);
                self.sleep_behind(last, call.client)
            }
        };
        let sleep = if index.is_some() { sleep.max(0) } else { sleep };
        match self.state.turn() {
            Some(turn) if sleep <= 0 => whole(self.now.left_until(turn.until).max(1)),
            _ => sleep,
        }
    }

    /// The time until the patience of the waiter at this position would be over in a queue that has just formed. For a
    /// waiter that was found in the keys, the time until its score; without a waiter, the lease.
    fn sleep_behind(&mut self, index: usize, client: Wall) -> i64 {
        let Some((_, waiter)) = self.state.waiter_at(index) else {
            return self.lease_as_sleep();
        };
        whole(match waiter.presence {
            Presence::Found => waiter.score.since(client),
            _ => score::ahead(self.lease_left(), waiter.patience, index),
        })
    }

    /// The lease as a script replies it, in the form of PTTL: -1 for none, -2 for a lock that is free.
    fn lease_as_sleep(&mut self) -> i64 {
        if !self.state.is_held() {
            return -2;
        }
        let (end, now) = (self.state.lease_end(), self.now.wall());
        end.map_or(-1, |end| whole(end.since(now)))
    }

    /// Gives up one hold. If it was the owner's last one, the owner no longer holds the lock, and the head's turn has
    /// started if it can have the lock.
    ///
    /// # Errors
    /// [`Refusal::NotALock`], [`Refusal::HoldsOverflow`]; nothing has changed then.
    pub fn unlock(
        &mut self,
        owner: &[u8],
        lease: Millis,
        client: Wall,
    ) -> Result<Unlocked, Refusal> {
        self.drop_ended(None);
        let holds = self.state.holds(owner);
        match holds {
            Holds::Unreadable => return Err(Refusal::NotALock),
            Holds::Count(i64::MIN) => return Err(Refusal::HoldsOverflow),
            Holds::Count(_) | Holds::None => (),
        }
        self.drop_dead(None, client);
        let unlocked = match holds {
            _ if !self.state.is_held() => {
                self.wake_again();
                Unlocked::Freed
            }
            Holds::Count(count) if count > 1 => {
                self.give_up(owner, None, count, 1);
                self.extend(owner, lease);
                Unlocked::HeldStill
            }
            Holds::Count(_) => {
                self.state.count_down();
                self.free_of(owner);
                Unlocked::Freed
            }
            Holds::None | Holds::Unreadable => Unlocked::NotHeld,
        };
        self.settle(None);
        Ok(unlocked)
    }

    /// The lock is free already. As the script would, wakes the head also if its turn has started before.
    fn wake_again(&mut self) {
        let before = self.state.turn();
        self.settle(None);
        if let Some(turn) = before.filter(|turn| self.state.turn().as_ref() == Some(turn)) {
            self.wake(&turn.owner);
        }
    }

    /// Frees the lock from all its holders. Returns whether it was held; if not, this script wakes no waiter.
    ///
    /// # Errors
    /// [`Refusal::NotALock`]; nothing has changed then.
    pub fn force_unlock(&mut self, client: Wall) -> Result<bool, Refusal> {
        self.drop_ended(None);
        let held = self.state.is_held();
        if held {
            self.require_lock()?;
        }
        self.drop_dead(None, client);
        if held {
            self.free();
            self.settle(None);
        }
        Ok(held)
    }

    /// Takes the owner out of the queue, unless a connection is blocked here for it.
    pub fn leave_by_script(&mut self, owner: &[u8]) {
        self.drop_ended(None);
        let waiter = self.state.waiter(owner);
        if waiter.is_some_and(|waiter| waiter.ticket().is_none()) {
            self.leave(owner, S::withdraw);
        }
    }

    /// Drops dead heads whose scores are over by the client's clock, up to the first other one, or to the one that is
    /// asking now. A dead waiter whose score is not over may still come back.
    fn drop_dead(&mut self, asking: Option<&[u8]>, client: Wall) {
        while let Some((head, waiter)) = self.state.waiter_at(0)
            && asking != Some(head.as_ref())
            && waiter.score <= client
            && self.is_dead(&head, &waiter, client)
        {
            self.state.remove(&head);
            self.state.emit(Event::Reaped { owner: head });
        }
    }
}

fn whole(duration: Millis) -> i64 {
    i64::try_from(duration).unwrap_or(i64::MAX)
}
