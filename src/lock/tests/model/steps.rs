//! What a server does with the rules for each step, and what the answer must be.

use super::action::{Action, Step};
use super::holders::{Holder, Leaving};
use super::life::Life;
use super::oracle::{Asking, Cause, Checked, ensure};
use super::scope::{Scope, Wait};
use super::world::{NAMES, World};
use crate::lock::{self, Given};
use crate::lock::{Acquired, Ask, Limit, Millis, Refusal, WaitMode};

impl World {
    pub(super) fn acquire(&mut self, step: Step, scope: &Scope) -> Checked {
        let Action::Acquire {
            owner,
            slot,
            wait,
            limit,
            once,
            session,
        } = step.action
        else {
            return Ok(());
        };
        let connection = self.oracle.slots[owner][slot].connection;
        let ask = Ask {
            owner: NAMES[owner],
            lease: scope.lease,
            keeps_longer_lease: false,
            patience: scope.patience,
            once,
            session: session.then_some(connection),
            limit: Limit::read(limit),
        };
        let (rules, now) = (self.rules(scope), self.now);
        let held = self.oracle.holder(owner, now).cloned();
        let is_next = self.oracle.is_next(owner, limit, now, self.grace);
        let stored_token = self.stored_token(owner);
        let acquired = lock::Step::new(&mut self.state, &rules, now).acquire(&ask);
        let asking = Asking {
            owner,
            limit,
            life: Life::Polling(now.tick_after(ask.patience)),
            session: ask.session,
            token: acquired.ok().flatten().map(|acquired| acquired.token),
            by_script: false,
        };
        self.hear(Cause::asked(asking), step, scope)?;
        if let Some(before) = held {
            return self.held_again(&ask, &before, acquired, stored_token);
        }
        if acquired == Err(Refusal::OtherLimit) {
            // Its blocked request was served in this step, and was for another limit.
            let holder = self.oracle.holder(owner, now);
            let other = holder.is_some_and(|holder| holder.limit != limit);
            ensure!(other, "refused, and is no holder: {acquired:?}");
            return Ok(());
        }
        let acquired = acquired.map_err(|refusal| format!("refused: {refusal:?}"))?;
        ensure!(
            acquired.is_some() == is_next,
            "acquired: {acquired:?}, next: {is_next}"
        );
        if let Some(Acquired { reentrant, .. }) = acquired {
            let is_holder = self.oracle.is_holder(owner);
            ensure!(is_holder && !reentrant, "acquired in silence");
            return Ok(());
        }
        ensure!(!self.oracle.is_holder(owner), "acquired, and told nil");
        self.wait(&ask, asking, wait, step, scope)
    }

    /// Waits as was asked for.
    fn wait(
        &mut self,
        ask: &Ask<'_>,
        mut asking: Asking,
        wait: Wait,
        step: Step,
        scope: &Scope,
    ) -> Checked {
        match wait {
            // As after QUEUEFULL, what the request has left is all there is.
            Wait::Try => {
                let rules = self.rules(scope);
                lock::Step::new(&mut self.state, &rules, self.now).decline();
                self.hear(Cause::NONE, step, scope)?;
                return Ok(());
            }
            Wait::Poll => (),
            Wait::Block => {
                let ticket = self.number();
                asking.life = Life::Blocked(ticket);
                let mut slots = self.oracle.slots[asking.owner].iter_mut();
                if let Action::Acquire { slot, session, .. } = step.action
                    && let Some(slot) = slots.nth(slot)
                {
                    slot.blocked = Some(ticket);
                    slot.session = session;
                }
            }
        }
        self.join(ask, asking, step, scope)
    }

    fn join(&mut self, ask: &Ask<'_>, asking: Asking, step: Step, scope: &Scope) -> Checked {
        let (rules, now) = (self.rules(scope), self.now);
        let way = match asking.life {
            Life::Blocked(ticket) => WaitMode::Blocked(ticket),
            _ => WaitMode::Polling,
        };
        let mut queue = self.oracle.queue.iter();
        let position = queue.position(|place| place.owner == asking.owner);
        let waiting = self.oracle.queue.len();
        let mut rules_step = lock::Step::new(&mut self.state, &rules, now);
        let joined = rules_step
            .require_room(ask.owner)
            .map(|()| rules_step.join(ask, way));
        let full = position.is_none() && waiting >= rules.max_waiters;
        if full {
            ensure!(
                joined == Err(Refusal::QueueFull),
                "beyond the limit: {joined:?}"
            );
            for slot in &mut self.oracle.slots[asking.owner] {
                if Life::Blocked(slot.blocked.unwrap_or(0)) == asking.life {
                    slot.blocked = None;
                    slot.session = false;
                }
            }
            return self.hear(Cause::NONE, step, scope).map(drop);
        }
        let place = joined.map_err(|refusal| format!("refused: {refusal:?}"))?;
        let expected = position.unwrap_or(waiting) + 1;
        ensure!(
            place.position == expected,
            "{place:?} instead of {expected}"
        );
        let most = (ask.patience / 2).max(1);
        ensure!((1..=most).contains(&place.retry_after), "{place:?}");
        if let Some(index) = position {
            self.oracle.queue[index].life = asking.life;
            self.oracle.queue[index].limit = asking.limit;
            let has_room = self.oracle.has_room(asking.limit, now);
            let stays = |(of, _): &(usize, _)| *of != asking.owner || has_room;
            self.oracle.turn = self.oracle.turn.filter(stays);
        }
        self.hear(Cause::asked(asking), step, scope)?;
        Ok(())
    }

    /// A holder has asked again: in the same way as before, or for a lock that it has for itself.
    fn held_again(
        &mut self,
        ask: &Ask<'_>,
        before: &Holder,
        acquired: Result<Option<Acquired>, Refusal>,
        stored_token: Option<i64>,
    ) -> Checked {
        let last = self.oracle.last_token;
        let fits = before.is_exclusive() || before.limit == ask.limit.shown();
        if !fits {
            ensure!(acquired == Err(Refusal::OtherLimit), "{acquired:?}");
            return Ok(());
        }
        let Ok(Some(Acquired { token, reentrant })) = acquired else {
            return Err(format!("the holder is refused: {acquired:?}"));
        };
        ensure!(reentrant, "the holder acquires anew");
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
        holder.hold_again(ask.once, ask.session);
        self.check_lease(before.owner, ask.lease)
    }

    /// A holder's lease has been set anew. One that a connection relies on may be longer.
    fn check_lease(&mut self, owner: usize, lease: Millis) -> Checked {
        let mut sessions = self.sessions();
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

    pub(super) fn release(&mut self, step: Step, scope: &Scope) -> Checked {
        let Action::Release {
            owner,
            slot,
            token,
            all,
        } = step.action
        else {
            return Ok(());
        };
        let connection = self.oracle.slots[owner][slot].connection;
        let before = self.oracle.holder(owner, self.now);
        // Served in this very step, as it would have been when the leases ended.
        let served = self.oracle.served_first(self.now, self.grace);
        let served = before.is_none() && served.contains(&owner);
        let holds = before.map_or(i64::from(served), |holder| holder.holds);
        let its = before.and_then(|holder| holder.token).unwrap_or(0);
        let token = token.map(|right| if right { its } else { its - 1 });
        // Where the token's key was lost, it is unknown which acquisition is meant.
        let known = self.stored_token(owner).filter(|_| !served);
        let over = self.is_any_over();
        let (rules, now) = (self.rules(scope), self.now);
        let left = lock::Step::new(&mut self.state, &rules, now).release(&lock::GiveUp {
            owner: NAMES[owner],
            token,
            holds: if all { Given::All } else { Given::One },
            connection: Some(connection),
        });
        if holds == 0 || (token.is_some() && (token != Some(its) || known != token)) {
            let refused = if holds == 0 {
                Refusal::NotHeld
            } else {
                Refusal::OtherToken
            };
            ensure!(left == Err(refused), "not held, released: {left:?}");
            ensure!(
                over || self.state.events.is_empty(),
                "something has changed"
            );
            return self.hear(Cause::NONE, step, scope).map(drop);
        }
        let expected = if all { 0 } else { holds - 1 };
        ensure!(left == Ok(expected), "{left:?} instead of {expected}");
        if expected > 0 {
            self.oracle.give_up(owner, 1, Some(connection));
        }
        let leaving = if expected == 0 {
            Leaving::One(owner)
        } else {
            Leaving::None
        };
        self.freed_if(leaving, step, scope)
    }

    /// Whether a hold has ended that the server has yet to drop.
    fn is_any_over(&self) -> bool {
        let mut holders = self.oracle.holders.iter();
        holders.any(|holder| holder.is_over(self.now))
    }

    /// Lets clients hear what happened: exactly these holders gave the lock up, each once.
    pub(super) fn freed_if(&mut self, leaving: Leaving, step: Step, scope: &Scope) -> Checked {
        let now = self.now;
        let holders = self.oracle.holders.iter();
        let holders = holders.filter(|holder| !holder.is_over(now)).count();
        let expected = match leaving {
            Leaving::None => 0,
            Leaving::One(_) => 1,
            Leaving::All => holders + self.oracle.served_first(now, self.grace).len(),
        };
        let freed = self.hear(Cause::leaving(leaving), step, scope)?;
        ensure!(
            freed == expected,
            "given up {freed} times, expected: {expected}"
        );
        Ok(())
    }

    pub(super) fn renew(
        &mut self,
        owner: usize,
        lease: Millis,
        step: Step,
        scope: &Scope,
    ) -> Checked {
        let rules = self.rules(scope);
        let renewed = lock::Step::new(&mut self.state, &rules, self.now).renew(NAMES[owner], lease);
        let renewed = renewed.map_err(|refusal| format!("not renewed: {refusal:?}"))?;
        ensure!(renewed >= lease, "renewed for {renewed} ms");
        self.hear(Cause::NONE, step, scope)?;
        self.check_lease(owner, lease)?;
        let stored = self.stored_lease_end(owner);
        let told = self.now.after(renewed);
        ensure!(
            stored == Some(told),
            "told {told}, renewed until {stored:?}"
        );
        Ok(())
    }

    pub(super) fn cancel(&mut self, owner: usize, step: Step, scope: &Scope) -> Checked {
        let rules = self.rules(scope);
        let place = self.oracle.queued(owner);
        let expected = place.is_some_and(|place| place.life != Life::Left);
        let cancelled = lock::Step::new(&mut self.state, &rules, self.now).cancel(NAMES[owner]);
        // Its turn may have come, or been over, in the same step.
        let served = self.oracle.holders.iter().any(|of| of.is_over(self.now));
        ensure!(
            cancelled == expected || served && !cancelled,
            "cancelled: {cancelled}"
        );
        self.hear(Cause::cancelled(owner), step, scope)?;
        let waits = self.oracle.queued(owner).is_some();
        ensure!(!waits, "cancelled, and still in the queue");
        Ok(())
    }

    /// Takes the lock from all its holders, or from one owner, if it is a holder.
    pub(super) fn break_lock(
        &mut self,
        owner: Option<usize>,
        step: Step,
        scope: &Scope,
    ) -> Checked {
        let (rules, now) = (self.rules(scope), self.now);
        let served = self.oracle.served_first(now, self.grace);
        let held = match owner {
            Some(owner) => self.oracle.holder(owner, now).is_some() || served.contains(&owner),
            None => !served.is_empty() || self.oracle.holders.iter().any(|of| !of.is_over(now)),
        };
        let leaving = match owner {
            _ if !held => Leaving::None,
            Some(owner) => Leaving::One(owner),
            None => Leaving::All,
        };
        let broken = lock::Step::new(&mut self.state, &rules, now).break_lock(&lock::TakeAway {
            owner: owner.map(|owner| NAMES[owner]),
            force: false,
        });
        ensure!(broken == Ok(held), "broken: {broken:?}, held: {held}");
        self.freed_if(leaving, step, scope)
    }
}
