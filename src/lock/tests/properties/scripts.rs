//! Steps by Redisson's scripts, where they run natively, and what their callers are told.

use proptest::prelude::*;

use super::super::memory::Memory;
use super::Action;
use super::world::{self, Checked, World, owner};
use crate::lock;
use crate::lock::scripts::{ScriptWait, Tried, TryLock, Unlocked};
use crate::lock::{Event, Owner, Presence, Queueing};

impl World {
    pub(super) fn act_by_script(&mut self, action: &Action, before: &Memory) -> Checked {
        match action {
            Action::ScriptLock {
                owner: name,
                lease,
                patience,
                sleep,
                skew,
            } => {
                let owner = owner(*name);
                let call = TryLock {
                    owner: &owner,
                    lease: *lease,
                    client: self.now.millis().saturating_add_signed(*skew),
                    wait: patience.map(|patience| ScriptWait {
                        patience,
                        sleep: *sleep,
                    }),
                    memory_is_full: false,
                };
                return self.lock_by_script(before, &call);
            }
            Action::ScriptUnlock {
                owner: name,
                forced,
                skew,
            } => self.unlock_by_script(&owner(*name), *forced, *skew)?,
            Action::ScriptLeave { owner: name } => {
                let owner = owner(*name);
                lock::Step::new(&mut self.state, &self.rules, self.now).leave_by_script(&owner);
                return self.check(before, Some(&owner), false);
            }
            _ => {
                lock::Step::new(&mut self.state, &self.rules, self.now).line_up();
                self.check_scores()?;
            }
        }
        self.check(before, None, false)
    }

    fn lock_by_script(&mut self, before: &Memory, call: &TryLock<'_>) -> Checked {
        let owner = Owner::from(call.owner);
        let tried = lock::Step::new(&mut self.state, &self.rules, self.now).try_lock(call);
        let (now, session) = (self.now, self.session_of(&owner));
        let relied_on = session.map_or(0, |session| session.lease);
        match (tried, self.holders.get_mut(&owner)) {
            (Ok(Tried::Acquired), Some(holder)) => {
                holder.holds += 1;
                holder.lease_end = now.after(call.lease.max(relied_on));
            }
            (Ok(Tried::Acquired), None) => {
                self.told = Some(world::Told {
                    owner: Owner::clone(&owner),
                    limit: 1,
                    token: None,
                    lease: call.lease,
                    session: None,
                });
            }
            (Ok(Tried::Refused), _) => prop_assert!(call.wait.is_none()),
            (Ok(Tried::Waits(sleep)), _) => {
                // Its time is over in the step in which it asks, if it has no patience and no lease runs.
                let ends = self.state.lease_end.is_none_or(|end| end <= now.millis());
                let is_over = ends && call.wait.is_some_and(|wait| wait.patience == 0);
                self.over_at_once = is_over.then(|| Owner::clone(&owner));
                prop_assert!(call.wait.is_some());
                // A connection that was blocked for it may have been served in this step, as it had asked.
                let is_served = self.is_handed_to(&owner);
                let waits = self.state.position(&owner).is_some();
                prop_assert!(waits || is_over || is_served);
                prop_assert!(sleep >= 0 || before.position_of(&owner).is_none());
                // No waiter is told to ask again at once while it is another's turn.
                prop_assert!(sleep > 0 || self.state.turn.is_none());
            }
            (Err(refusal), _) => prop_assert!(false, "{refusal:?}"),
        }
        self.check(before, Some(&owner), false)
    }

    /// Whether a blocked request of the owner is served in this step.
    fn is_handed_to(&self, owner: &Owner) -> bool {
        let mut events = self.state.events.iter();
        events.any(|event| matches!(event, Event::Granted { owner: of, .. } if of == owner))
    }

    fn unlock_by_script(&mut self, owner: &Owner, forced: bool, skew: i64) -> Checked {
        let (rules, now) = (self.rules, self.now);
        let client = now.millis().saturating_add_signed(skew);
        if forced {
            let freed = lock::Step::new(&mut self.state, &rules, now).force_unlock(client);
            prop_assert_eq!(freed, Ok(!self.holders.is_empty()));
            self.holders.clear();
            return Ok(());
        }
        let unlocked = lock::Step::new(&mut self.state, &rules, now).unlock(owner, 1_000, client);
        match self.holders.get(owner).map(|holder| holder.holds) {
            None if self.holders.is_empty() => prop_assert_eq!(unlocked, Ok(Unlocked::Freed)),
            None => prop_assert_eq!(unlocked, Ok(Unlocked::NotHeld)),
            Some(2..) => {
                prop_assert_eq!(unlocked, Ok(Unlocked::HeldStill));
                self.gave_up_one(owner, None)?;
                let relied_on = self.session_of(owner).map_or(0, |session| session.lease);
                if let Some(holder) = self.holders.get_mut(owner) {
                    holder.lease_end = now.after(relied_on.max(1_000));
                }
            }
            Some(_) => {
                prop_assert_eq!(unlocked, Ok(Unlocked::Freed));
                self.holders.remove(owner);
            }
        }
        Ok(())
    }

    /// Where scripts run as Lua, each acquisition takes the waiter's patience off all scores: none is over by the time
    /// its waiter is the head.
    fn check_scores(&self) -> Checked {
        let mut before = self.now.millis();
        for (_, waiter) in &self.state.queue {
            prop_assert!(waiter.score > before, "{:?} after {}", waiter, before);
            prop_assert!(waiter.presence != Presence::Asked);
            if waiter.presence != Presence::Found {
                prop_assert!(waiter.score >= before.saturating_add(waiter.patience));
            }
            before = waiter.score;
        }
        Ok(())
    }
}
