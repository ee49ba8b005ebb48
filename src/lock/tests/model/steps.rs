//! What a server does with the rules for each step, and what the answer must be.

use super::action::{Action, Step};
use super::life::Life;
use super::oracle::{Asking, Checked, ensure};
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
            limit: Limit::EXCLUSIVE,
        };
        let (rules, now) = (self.rules(scope), self.now);
        let is_next = self.oracle.is_next(owner, now, self.grace);
        let token_is_lost = self.state.token.is_none();
        let acquired = lock::Step::new(&mut self.state, &rules, now).acquire(&ask);
        let acquired = acquired.map_err(|refusal| format!("refused: {refusal:?}"))?;
        let mut asking = Asking {
            owner,
            life: Life::Polling(now.tick_after(ask.patience)),
            session: ask.session,
            by_script: false,
        };
        if self.oracle.is_holder(owner) {
            let acquired = acquired.ok_or("the holder is refused")?;
            self.hear(Some(asking), None, step, scope)?;
            return self.held_again(&ask, acquired, token_is_lost);
        }
        ensure!(
            acquired.is_some() == is_next,
            "acquired: {acquired:?}, next: {is_next}"
        );
        let last = self.oracle.last_token;
        self.hear(Some(asking), None, step, scope)?;
        if let Some(Acquired { token, reentrant }) = acquired {
            ensure!(
                self.oracle.is_holder(owner) && !reentrant,
                "acquired in silence"
            );
            ensure!(token > last, "token {token} after {last}");
            self.oracle.last_token = token;
            if let Some(holder) = &mut self.oracle.holder {
                holder.token = Some(token);
            }
            return Ok(());
        }
        ensure!(!self.oracle.is_holder(owner), "acquired, and told nil");
        match wait {
            Wait::Try => return Ok(()),
            Wait::Poll => (),
            Wait::Block => {
                let ticket = self.number();
                asking.life = Life::Blocked(ticket);
                self.oracle.slots[owner][slot].blocked = Some(ticket);
                self.oracle.slots[owner][slot].session = session;
            }
        }
        self.join(&ask, asking, step, scope)
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
            return self.hear(None, None, step, scope).map(drop);
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
        }
        self.hear(Some(asking), None, step, scope)?;
        Ok(())
    }

    /// The holder has asked again.
    fn held_again(&mut self, ask: &Ask<'_>, acquired: Acquired, token_is_lost: bool) -> Checked {
        let last = self.oracle.last_token;
        let Some(holder) = &mut self.oracle.holder else {
            return Err("the holder is gone".into());
        };
        ensure!(acquired.reentrant, "the holder acquires anew");
        let token = acquired.token;
        if token_is_lost {
            ensure!(token > last, "token {token} after {last}");
        } else {
            ensure!(Some(token) == holder.token, "another token");
        }
        self.oracle.last_token = token;
        holder.token = Some(token);
        holder.holds += i64::from(!ask.once);
        if ask.once {
            holder.untold = false;
        }
        let holds = holder.holds;
        if let Some(connection) = ask.session {
            let bound = &mut self.oracle.bound;
            if ask.once {
                *bound = vec![(connection, holds)];
            } else if let Some((_, brought)) = bound.iter_mut().find(|of| of.0 == connection) {
                *brought += 1;
            } else {
                bound.push((connection, 1));
            }
        }
        self.check_lease(ask.lease)
    }

    fn check_lease(&self, lease: u64) -> Checked {
        let relied_on = match &self.state.session {
            Some(session) if !self.oracle.bound.is_empty() => session.lease,
            _ => 0,
        };
        let end = self.now.after(lease.max(relied_on));
        ensure!(
            self.state.lease_end == Some(end),
            "the lease was not renewed"
        );
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
        let before = self.oracle.holder;
        let holds = self.oracle.holds(owner);
        let its = before.and_then(|holder| holder.token).unwrap_or(0);
        let token = token.map(|right| if right { its } else { its - 1 });
        // Where the token's key was lost, nobody can tell which acquisition is meant.
        let known = self.state.token;
        let (rules, now) = (self.rules(scope), self.now);
        let left = lock::Step::new(&mut self.state, &rules, now).release(&lock::Release {
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
            return self.unchanged(step, scope);
        }
        let expected = if all { 0 } else { holds - 1 };
        ensure!(left == Ok(expected), "{left:?} instead of {expected}");
        if expected > 0 {
            self.oracle.give_up(1, Some(connection));
        }
        self.freed_if(expected == 0, step, scope)
    }

    fn unchanged(&mut self, step: Step, scope: &Scope) -> Checked {
        ensure!(self.state.events.is_empty(), "something has changed");
        self.hear(None, None, step, scope).map(drop)
    }

    /// Lets clients hear what happened: the lock was given up once, or not.
    pub(super) fn freed_if(&mut self, expected: bool, step: Step, scope: &Scope) -> Checked {
        let freed = self.hear(None, None, step, scope)?;
        ensure!(
            freed == usize::from(expected),
            "given up {freed} times, expected: {expected}"
        );
        Ok(())
    }

    pub(super) fn renew(&mut self, owner: usize, lease: Millis, scope: &Scope) -> Checked {
        let rules = self.rules(scope);
        let renewed = lock::Step::new(&mut self.state, &rules, self.now).renew(NAMES[owner], lease);
        let renewed = renewed.map_err(|refusal| format!("not renewed: {refusal:?}"))?;
        let fits = renewed == lease || (renewed > lease && !self.oracle.bound.is_empty());
        ensure!(fits, "renewed for {renewed} ms");
        self.remember_due(scope);
        self.check_lease(lease)
    }

    pub(super) fn cancel(&mut self, owner: usize, step: Step, scope: &Scope) -> Checked {
        let rules = self.rules(scope);
        let place = self.oracle.queued(owner);
        let expected = place.is_some_and(|place| place.life != Life::Left);
        let cancelled = lock::Step::new(&mut self.state, &rules, self.now).cancel(NAMES[owner]);
        ensure!(cancelled == expected, "cancelled: {cancelled}");
        self.hear(None, Some(owner), step, scope)?;
        let waits = self.oracle.queued(owner).is_some();
        ensure!(!waits, "cancelled, and still in the queue");
        Ok(())
    }

    pub(super) fn break_lock(&mut self, step: Step, scope: &Scope) -> Checked {
        let rules = self.rules(scope);
        let broken = lock::Step::new(&mut self.state, &rules, self.now).break_lock(&lock::Break {
            owner: None,
            force: false,
        });
        ensure!(broken == Ok(true), "nothing to break: {broken:?}");
        self.freed_if(true, step, scope)
    }
}
