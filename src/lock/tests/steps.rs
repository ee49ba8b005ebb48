//! What a server does with the rules for each command, and what the answer must be.

use super::action::Request;
use super::holders::Holder;
use super::life::{Life, heard_after};
use super::oracle::{Asking, Cause, Checked, Queued, ensure};
use super::scope::Wait;
use super::world::{NAMES, World};
use crate::lock::acquire::Joined;
use crate::lock::{Ask, GiveUp, Limit, Millis, Outcome, Refusal, Terms, WaitMode};

impl World {
    pub(super) fn acquire(&mut self, request: Request) -> Checked {
        let (owner, slot, now) = (request.owner, request.slot, self.now);
        let ticket = self.number();
        let connection = self.oracle.slots[owner][slot].connection;
        let mut terms = Terms::UNKNOWN;
        terms.lease = request.lease;
        terms.session = request.session.then_some(connection);
        terms.limit = Limit::read(request.limit);
        let ask = Ask {
            owner: NAMES[owner],
            terms,
            keeps_longer_lease: request.keeps,
            patience: request.patience,
            once: request.once,
            wait: match request.wait {
                Wait::Try => None,
                Wait::Poll => Some(WaitMode::Polling),
                Wait::Block => Some(WaitMode::Blocked(ticket)),
            },
        };
        let held = self.oracle.holder(owner, now).cloned();
        let life = (self.rules.grace, now.wall());
        let is_next = self.oracle.is_next(owner, request.limit, now, life);
        let stored_token = self.stored_token(owner);
        let is_new = self.oracle.queued(owner).is_none();
        let outcome = self.step(|mut step| step.ask(&ask));
        let place = Queued {
            owner,
            life: match request.wait {
                Wait::Block => Life::Blocked(ticket),
                _ => Life::Polling(heard_after(now, request.patience)),
            },
            limit: request.limit,
            lease: request.lease,
            patience: request.patience,
            since: now.steady,
        };
        let asking = Asking {
            place,
            session: ask.terms.session,
            token: match outcome {
                Ok(Outcome::Acquired(token)) => Some(token),
                _ => None,
            },
        };
        self.receive(Cause::Asks(asking))?;
        if let Some(before) = held {
            return self.held_again(&ask, &before, outcome, stored_token);
        }
        if outcome == Err(Refusal::OtherLimit) {
            // Its blocked request was served in this step, and was for another limit.
            let holder = self.oracle.holder(owner, now);
            let other = holder.is_some_and(|holder| holder.limit != request.limit);
            ensure!(other, "refused, and is no holder: {outcome:?}");
            return Ok(());
        }
        let acquired = matches!(outcome, Ok(Outcome::Acquired(_)));
        ensure!(acquired == is_next, "{outcome:?}, next: {is_next}");
        let is_holder = self.oracle.holds(owner) > 0;
        ensure!(is_holder == acquired, "{outcome:?}, holds: {is_holder}");
        match outcome {
            Ok(Outcome::Acquired(_)) => (),
            Ok(Outcome::Declined) => ensure!(request.wait == Wait::Try, "not queued"),
            Ok(Outcome::Joined(joined)) => {
                if request.wait == Wait::Block {
                    let slot = &mut self.oracle.slots[owner][slot];
                    (slot.blocked, slot.session) = (Some(ticket), request.session);
                }
                return self.joined(asking, joined, is_new);
            }
            Err(refusal) => {
                let is_full = self.oracle.queue.len() >= self.rules.max_waiters;
                let waits = request.wait != Wait::Try && self.oracle.queued(owner).is_none();
                let expected = refusal == Refusal::QueueFull && is_full && waits;
                ensure!(expected, "refused: {refusal:?}");
            }
        }
        Ok(())
    }

    /// A request waits, at its place or at its owner's former one.
    fn joined(&mut self, asking: Asking, joined: Joined, is_new: bool) -> Checked {
        self.waits = true;
        let mut queue = self.oracle.queue.iter();
        let index = queue.position(|place| place.owner == asking.place.owner);
        let index = index.ok_or("it waits without a place")?;
        let all = self.oracle.queue.len();
        let fits = all <= self.rules.max_waiters;
        ensure!(fits || !is_new, "{all} waiters");
        self.oracle.asked_again(asking, self.now);
        let most = (asking.place.patience / 2).max(1);
        let ends = self.oracle.holders.iter().map(|of| of.lease_end);
        let until_free = match self.oracle.turn {
            Some((_, until)) => Some(until.since(heard_after(self.now, 0))),
            None => ends.min().map(|end| end.since(self.now.wall())),
        };
        let expected = Joined {
            position: index + 1,
            retry_after: until_free.unwrap_or(most).clamp(1, most),
        };
        ensure!(joined == expected, "{joined:?} instead of {expected:?}");
        Ok(())
    }

    /// A holder has asked again: in the same way as before, or for a lock that it has for itself.
    fn held_again(
        &mut self,
        ask: &Ask<'_>,
        before: &Holder,
        outcome: Result<Outcome, Refusal>,
        stored_token: Option<i64>,
    ) -> Checked {
        let last = self.oracle.last_token;
        let fits = before.is_exclusive() || before.limit == ask.terms.limit.shown();
        if !fits {
            ensure!(outcome == Err(Refusal::OtherLimit), "{outcome:?}");
            return Ok(());
        }
        let Ok(Outcome::Acquired(token)) = outcome else {
            return Err(format!("the holder is refused: {outcome:?}"));
        };
        if stored_token.is_some() {
            ensure!(Some(token) == before.token, "another token");
        } else {
            ensure!(token > last, "token {token} after {last}");
        }
        self.oracle.last_token = last.max(token);
        let Some(holder) = self.oracle.holder_mut(before.owner) else {
            return Err("the holder is gone".into());
        };
        holder.token = Some(token);
        holder.hold_again(ask.once, ask.terms.session);
        if ask.keeps_longer_lease && before.lease_end > self.now.after(ask.terms.lease) {
            let stored = self.stored_lease_end(before.owner);
            ensure!(
                stored == Some(before.lease_end),
                "it was longer: {before:?}"
            );
            return Ok(());
        }
        self.check_lease(before.owner, ask.terms.lease)
    }

    /// A holder's lease has been set anew. One that a connection relies on may be longer.
    pub(super) fn check_lease(&mut self, owner: usize, lease: Millis) -> Checked {
        let mut sessions = self.state.sessions();
        let session = sessions.find(|session| *session.owner == *NAMES[owner]);
        let relied_on = session.map_or(0, |session| session.lease);
        drop(sessions);
        let end = self.now.after(lease.max(relied_on));
        let stored = self.stored_lease_end(owner);
        ensure!(stored == Some(end), "the lease was not renewed: {stored:?}");
        if let Some(holder) = self.oracle.holder_mut(owner) {
            ensure!(
                relied_on == 0 || !holder.bound.is_empty(),
                "bound to nothing: {holder:?}"
            );
            holder.lease_end = end;
        }
        Ok(())
    }

    pub(super) fn release(
        &mut self,
        (owner, slot): (usize, usize),
        token: Option<bool>,
        all: bool,
    ) -> Checked {
        let connection = self.oracle.slots[owner][slot].connection;
        let before = self.oracle.holder(owner, self.now);
        // Served in this very step, as it would have been when the leases ended.
        let served = self.is_served_first(owner);
        let holds = before.map_or(i64::from(served), |holder| holder.holds);
        let its = before.and_then(|holder| holder.token).unwrap_or(0);
        let token = token.map(|right| if right { its } else { its - 1 });
        // Where the token's key was lost, it is unknown which acquisition is meant.
        let known = self.stored_token(owner).filter(|_| !served);
        let over = self.oracle.holders.iter().any(|of| of.is_over(self.now));
        let request = GiveUp {
            owner: NAMES[owner],
            token,
            all,
            connection: Some(connection),
        };
        let left = self.step(|mut step| step.release(&request));
        if holds == 0 || (token.is_some() && (token != Some(its) || known != token)) {
            let refused = if holds == 0 {
                Refusal::NotHeld
            } else {
                Refusal::OtherToken
            };
            ensure!(left == Err(refused), "not held, released: {left:?}");
            let silent = self.state.events.is_empty();
            ensure!(over || silent, "something has changed");
            return self.receive(Cause::None).map(drop);
        }
        let expected = if all { 0 } else { holds - 1 };
        ensure!(left == Ok(expected), "{left:?} instead of {expected}");
        if expected == 0 {
            return self.freed_if(Cause::Releases(owner));
        }
        self.oracle.give_up(owner, 1, Some(connection));
        self.freed_if(Cause::None)
    }

    /// How many hold the lock once the step has found that leases have ended, and has served waiters.
    pub(super) fn count_holders(&self) -> usize {
        let holders = self.oracle.holders.iter();
        let holders = holders.filter(|of| !of.is_over(self.now)).count();
        holders + self.oracle.served_first(self.now, self.rules.grace).len()
    }

    /// Whether a waiter is served because the step finds that leases have ended.
    pub(super) fn is_served_first(&self, owner: usize) -> bool {
        let served = self.oracle.served_first(self.now, self.rules.grace);
        self.oracle.holder(owner, self.now).is_none() && served.contains(&owner)
    }

    /// Tells clients what happened: exactly these holders gave the lock up, each once.
    pub(super) fn freed_if(&mut self, cause: Cause) -> Checked {
        let expected = match cause {
            Cause::Releases(_) => 1,
            Cause::Closes(owner, connection) => {
                let holder = self.oracle.holder(owner, self.now);
                usize::from(holder.is_some_and(|of| of.ends_with(connection)))
            }
            Cause::Breaks => self.count_holders(),
            _ => 0,
        };
        let freed = self.receive(cause)?;
        ensure!(
            freed == expected,
            "given up {freed} times, expected: {expected}"
        );
        Ok(())
    }

    pub(super) fn renew(&mut self, owner: usize, lease: Millis) -> Checked {
        let holds = self.oracle.holder(owner, self.now).is_some() || self.is_served_first(owner);
        let renewed = self.step(|mut step| step.renew(NAMES[owner], lease));
        self.receive(Cause::None)?;
        if !holds {
            ensure!(renewed == Err(Refusal::NotHeld), "not held: {renewed:?}");
            return Ok(());
        }
        let renewed = renewed.map_err(|refusal| format!("not renewed: {refusal:?}"))?;
        ensure!(renewed >= lease, "renewed for {renewed} ms");
        self.check_lease(owner, lease)?;
        let stored = self.stored_lease_end(owner);
        let told = self.now.after(renewed);
        ensure!(
            stored == Some(told),
            "told {told:?}, renewed until {stored:?}"
        );
        Ok(())
    }

    pub(super) fn cancel(&mut self, owner: usize) -> Checked {
        let place = self.oracle.queued(owner);
        let expected = place.is_some_and(|place| place.life != Life::Left);
        // Its turn may have come, or been over, in the same step.
        let served = self.oracle.holders.iter().any(|of| of.is_over(self.now));
        let cancelled = self.step(|mut step| step.cancel(NAMES[owner]));
        ensure!(
            cancelled == expected || served && !cancelled,
            "cancelled: {cancelled}"
        );
        self.receive(Cause::Cancels(owner))?;
        let waits = self.oracle.queued(owner).is_some();
        ensure!(!waits, "cancelled, and still in the queue");
        Ok(())
    }

    /// Takes the lock from all its holders, or from one owner, if it is a holder.
    pub(super) fn break_lock(&mut self, owner: Option<usize>) -> Checked {
        let (held, cause) = match owner {
            Some(owner) => {
                let holds = self.oracle.holder(owner, self.now).is_some();
                (holds || self.is_served_first(owner), Cause::Releases(owner))
            }
            None => (self.count_holders() > 0, Cause::Breaks),
        };
        let of = owner.map(|owner| NAMES[owner]);
        let broken = self.step(|mut step| step.break_lock(of, false));
        ensure!(broken == Ok(held), "broken: {broken:?}, held: {held}");
        self.freed_if(if held { cause } else { Cause::None })
    }
}
