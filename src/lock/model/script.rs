//! Owners that use Redisson's scripts: what these do to the keys, and how the server mends the
//! queue behind them.

use super::action::Step;
use super::life::Life;
use super::scope::Scope;
use super::told::{Checked, Holder, Place, ensure, index};
use super::world::{NAMES, World};
use crate::lock::rules;
use crate::lock::{Deadline, Millis, Owner, Presence, State, Waiter};

type Entry = (Owner, Waiter, Millis);

impl World {
    /// The script that takes the lock or joins the queue, in its newest form.
    pub(super) fn lock_by_script(&mut self, owner: usize, step: Step, scope: &Scope) -> Checked {
        let (wait, now) = (scope.wait, self.now.millis());
        let dropped = self.drop_dead();
        let head = self.state.queue.first().map(|entry| index(&entry.0));
        let mut asked = None;
        if self.state.holder.is_none() && head.is_none_or(|head| head == owner) {
            self.check_overtaking(owner, scope)?;
            self.state.remove(NAMES[owner]);
            for (_, _, score) in &mut self.state.queue {
                *score = score.saturating_sub(wait);
            }
            self.state.set_holds(NAMES[owner], 1);
            self.state.set_lease_end(self.now.after(scope.lease));
            self.told.remove(owner);
            self.told.holder = Some(Holder {
                owner,
                holds: 1,
                token: None,
                untold: false,
            });
        } else {
            let mut ttl = self
                .state
                .lease_end
                .map_or(0, |end| end.saturating_sub(now));
            if self.state.position(NAMES[owner]).is_none() {
                if let Some((_, _, score)) = self.state.queue.last() {
                    // Less than nothing is possible; it only makes the new score smaller.
                    ttl = score.saturating_sub(now);
                }
                self.join_by_script(owner, self.now.after(ttl + wait));
            }
            asked = Some(ttl + wait);
        }
        self.mend(dropped, scope);
        self.script_is_through(asked.map(|alive| (owner, alive)), step, scope)
    }

    fn join_by_script(&mut self, owner: usize, score: Millis) {
        let found = Waiter {
            presence: Presence::Found,
            lease: 0,
            session: None,
            deadline: Deadline::default(),
            since: self.now.steady,
        };
        self.state.push(NAMES[owner], found, score);
        // It may have been dropped as dead a moment ago.
        self.told.remove(owner);
        let life = Life::Found(score, None);
        self.told.places.push(Place { owner, life });
    }

    /// The script that gives up the lock.
    pub(super) fn unlock_by_script(&mut self, _: usize, step: Step, scope: &Scope) -> Checked {
        let dropped = self.drop_dead();
        self.state.free();
        self.told.freed();
        self.mend(dropped, scope);
        self.script_is_through(None, step, scope)
    }

    /// The script by which a waiter leaves the queue.
    pub(super) fn leave_by_script(&mut self, owner: usize, step: Step, scope: &Scope) -> Checked {
        let position = self.state.position(NAMES[owner]).unwrap_or(0);
        for (_, _, score) in self.state.queue.iter_mut().skip(position + 1) {
            *score = score.saturating_sub(scope.wait);
        }
        self.state.remove(NAMES[owner]);
        self.told.remove(owner);
        self.mend(Vec::new(), scope);
        self.script_is_through(None, step, scope)
    }

    /// Nobody who is served by this server, and alive, may be ahead of a script that takes the
    /// lock.
    fn check_overtaking(&self, owner: usize, scope: &Scope) -> Checked {
        if self.touched && !scope.rules.intercepts {
            // Two scripts in one turn of the event loop: the server cannot act between them.
            return Ok(());
        }
        for place in self.told.places.iter().take_while(|of| of.owner != owner) {
            let shielded = place.life.is_shielded(self.now, scope.rules.intercepts);
            ensure!(!shielded, "a script of {owner} overtakes {place:?}");
        }
        Ok(())
    }

    /// Scripts drop heads whose scores are over.
    fn drop_dead(&mut self) -> Vec<Entry> {
        let now = self.now.millis();
        let queue = &mut self.state.queue;
        let lives = queue.iter().position(|(_, _, score)| *score > now);
        let dead = lives.unwrap_or(queue.len());
        queue.drain(..dead).collect()
    }

    /// The server puts back whom scripts must not drop; the others are gone.
    fn mend(&mut self, dropped: Vec<Entry>, scope: &Scope) {
        let now = self.now;
        let patience = now.deadline_after(scope.rules.patience);
        let mut kept = Vec::new();
        for (owner, mut waiter, _) in dropped {
            let lives = waiter.deadline.tick > now.tick();
            let has_joined_again = self.state.position(&owner).is_some();
            let given = match waiter.presence {
                Presence::Blocked(_) => {
                    waiter.deadline = patience;
                    Some(patience.wall)
                }
                Presence::Polling if lives => Some(waiter.deadline.wall),
                Presence::Asked if lives && scope.rules.intercepts => {
                    Some(patience.wall.min(waiter.deadline.wall))
                }
                _ => None,
            };
            match given {
                _ if has_joined_again || self.told.is_holder(index(&owner)) => (),
                Some(deadline) => kept.push((owner, waiter, deadline)),
                None => self.told.remove(index(&owner)),
            }
        }
        kept.append(&mut self.state.queue);
        self.state.queue = kept;
        let head = self.state.queue.first().map(|entry| &entry.0);
        if self.state.turn.as_ref().map(|turn| &turn.owner) != head {
            self.state.turn = None;
        }
    }

    /// Where scripts are intercepted, the lock is looked at at once, and whoever has asked is known
    /// to live; else at the end of the turn.
    fn script_is_through(
        &mut self,
        asked: Option<(usize, Millis)>,
        step: Step,
        scope: &Scope,
    ) -> Checked {
        if !scope.rules.intercepts {
            self.touched = true;
            self.stirred = true;
            return Ok(());
        }
        if let Some((owner, alive)) = asked {
            rules::asked(&mut self.state, NAMES[owner], alive, self.now);
            let until = self.now.tick_after(alive);
            let mut places = self.told.places.iter_mut();
            if let Some(place) = places.find(|place| place.owner == owner) {
                place.life = Life::Asked(until);
            }
        }
        self.touched = false;
        self.read_deadlines();
        self.look(step, scope)
    }
}
