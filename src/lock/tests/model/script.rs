//! Owners that use Redisson's scripts: as steps of the rules where they are intercepted; else as Lua, with
//! what it does to the keys, and how the server mends the queue behind it.

use super::action::Step;
use super::holders::{Holder, Leaving};
use super::life::Life;
use super::oracle::{Asking, Cause, Checked, Queued, ensure, index};
use super::scope::Scope;
use super::world::{NAMES, World};
use crate::lock;
use crate::lock::scripts::{ScriptWait, Sleep, Tried, TryLock, Unlocked};
use crate::lock::{Holding, Millis, Owner, Presence, Queueing, Waiter, score};

type Entry = (Owner, Waiter);

impl World {
    /// The script that takes the lock or joins the queue, in its newest form.
    pub(super) fn lock_by_script(&mut self, owner: usize, step: Step, scope: &Scope) -> Checked {
        if scope.rules.intercepts {
            self.lock_natively(owner, step, scope)
        } else {
            self.lock_by_lua(owner, scope)
        }
    }

    fn lock_natively(&mut self, owner: usize, step: Step, scope: &Scope) -> Checked {
        let (rules, now) = (self.rules(scope), self.now);
        let is_next = self.oracle.is_next(owner, 1, now, self.grace);
        let known = self.oracle.queued(owner).is_some();
        let call = TryLock {
            owner: NAMES[owner],
            lease: scope.lease,
            client: now.millis(),
            wait: Some(ScriptWait {
                patience: scope.wait,
                sleep: Sleep::Lease,
            }),
            memory_is_full: false,
        };
        let tried = lock::Step::new(&mut self.state, &rules, now).try_lock(&call);
        let tried = tried.map_err(|refusal| format!("refused: {refusal:?}"))?;
        // What is left now: the lease of another may have begun in this step.
        let left = self.lease_left();
        let life = Life::Asked(now.tick_after(left + scope.wait));
        let asking = Asking {
            owner,
            limit: 1,
            life,
            session: None,
            token: None,
            by_script: true,
        };
        self.hear(Cause::asked(asking), step, scope)?;
        ensure!(
            (tried == Tried::Acquired) == is_next,
            "{tried:?}, next: {is_next}"
        );
        let Tried::Waits(told) = tried else {
            return Ok(());
        };
        ensure!(
            told > 0 || self.state.turn.is_none(),
            "told {told} at another's turn"
        );
        let mut queue = self.oracle.queue.iter_mut();
        let place = queue.find(|place| place.owner == owner);
        let place = place.ok_or("it waits without a place")?;
        place.life = life;
        if let Some(sleeps) = Millis::try_from(told).ok().filter(|_| known) {
            place.life = Life::Asked(now.tick_after(left.max(sleeps) + scope.wait));
        }
        Ok(())
    }

    fn lease_left(&mut self) -> Millis {
        score::lease_left(&mut self.state, self.now)
    }

    fn lock_by_lua(&mut self, owner: usize, scope: &Scope) -> Checked {
        let wait = scope.wait;
        let dropped = self.drop_dead();
        let head = self.state.queue.first().map(|entry| index(&entry.0));
        if !self.state.is_held() && head.is_none_or(|head| head == owner) {
            self.check_overtaking(owner)?;
            self.state.remove(NAMES[owner]);
            self.lessen_behind(0, wait);
            self.state.set_holds(NAMES[owner], 1);
            self.state.set_lease_end(self.now.after(scope.lease));
            self.oracle.remove(owner);
            self.oracle.holders.push(Holder {
                owner,
                limit: 1,
                holds: 1,
                token: None,
                untold: false,
                lease_end: self.now.after(scope.lease),
                since: None,
                bound: Vec::new(),
                lost: false,
            });
        } else if self.state.position(NAMES[owner]).is_none() {
            let last = self.state.queue.last().map(|entry| entry.1.score);
            let until_free = self.now.after(self.lease_left());
            self.join_by_script(owner, last.unwrap_or(until_free) + wait);
        }
        self.mend(dropped);
        self.touch();
        Ok(())
    }

    /// Lua lowers the scores of the waiters from a position on.
    fn lessen_behind(&mut self, position: usize, wait: Millis) {
        for (_, waiter) in self.state.queue.iter_mut().skip(position) {
            waiter.score = waiter.score.saturating_sub(wait);
        }
    }

    fn join_by_script(&mut self, owner: usize, score: Millis) {
        let found = Waiter::found(score, self.now);
        self.state.push(NAMES[owner], found);
        // It may have been dropped as dead a moment ago: then it is where it was, turn and all.
        self.oracle.queue.retain(|place| place.owner != owner);
        let life = Life::Found(score, None);
        self.oracle.queue.push(Queued {
            owner,
            life,
            limit: 1,
        });
    }

    /// The script that gives up the lock.
    pub(super) fn unlock_by_script(&mut self, owner: usize, step: Step, scope: &Scope) -> Checked {
        let (rules, now) = (self.rules(scope), self.now);
        if scope.rules.intercepts {
            let (name, time) = (NAMES[owner], now.millis());
            let unlocked =
                lock::Step::new(&mut self.state, &rules, now).unlock(name, scope.lease, time);
            ensure!(unlocked == Ok(Unlocked::Freed), "{unlocked:?}");
            return self.freed_if(Leaving::One(owner), step, scope);
        }
        let dropped = self.drop_dead();
        self.state.free();
        self.oracle.freed();
        self.mend(dropped);
        self.touch();
        Ok(())
    }

    /// The script by which a waiter leaves the queue.
    pub(super) fn leave_by_script(&mut self, owner: usize, step: Step, scope: &Scope) -> Checked {
        if scope.rules.intercepts {
            let rules = self.rules(scope);
            lock::Step::new(&mut self.state, &rules, self.now).leave_by_script(NAMES[owner]);
            return self.hear(Cause::cancelled(owner), step, scope).map(drop);
        }
        let position = self.state.position(NAMES[owner]).unwrap_or(0);
        let wait = scope.wait;
        self.state.remove(NAMES[owner]);
        self.lessen_behind(position, wait);
        self.oracle.remove(owner);
        self.mend(Vec::new());
        self.touch();
        Ok(())
    }

    /// The server looks at what scripts have done as Lua at the end of the turn.
    fn touch(&mut self) {
        self.touched = true;
        self.stirred = true;
    }

    /// No living waiter of this server may be ahead of a script that takes the lock.
    fn check_overtaking(&self, owner: usize) -> Checked {
        if self.touched {
            // Two scripts in one iteration of the event loop: the server cannot act between them.
            return Ok(());
        }
        for place in self.oracle.queue.iter().take_while(|of| of.owner != owner) {
            let shielded = place.life.is_shielded(self.now);
            ensure!(!shielded, "a script of {owner} overtakes {place:?}");
        }
        Ok(())
    }

    /// Scripts drop heads whose scores are over.
    fn drop_dead(&mut self) -> Vec<Entry> {
        let now = self.now.millis();
        let queue = &mut self.state.queue;
        let lives = queue.iter().position(|(_, waiter)| waiter.score > now);
        let dead = lives.unwrap_or(queue.len());
        queue.drain(..dead).collect()
    }

    /// The server puts back the waiters that scripts must not drop; the others are gone.
    fn mend(&mut self, dropped: Vec<Entry>) {
        let now = self.now;
        let left = self.lease_left();
        let mut kept = Vec::new();
        for (owner, mut waiter) in dropped {
            let has_joined_again = self.state.position(&owner).is_some();
            if waiter.lives(now) && waiter.presence != Presence::Asked {
                if !has_joined_again && !self.oracle.is_holder(index(&owner)) {
                    let patience = waiter.patience.max(1);
                    waiter.score = now.after(score::ahead(left, patience, kept.len()));
                    kept.push((owner, waiter));
                }
            } else if !has_joined_again && !self.oracle.is_holder(index(&owner)) {
                self.oracle.remove(index(&owner));
            }
        }
        kept.append(&mut self.state.queue);
        self.state.queue = kept;
        let head = self.state.queue.first().map(|entry| &entry.0);
        if self.state.turn.as_ref().map(|turn| &turn.owner) != head {
            self.state.turn = None;
            self.oracle.turn = None;
        }
    }
}
