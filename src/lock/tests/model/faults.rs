//! What happens to the server: restarts, a clock that is set.

use super::action::Step;
use super::life::Life;
use super::oracle::{Checked, index};
use super::scope::Scope;
use super::world::World;
use crate::lock::{Now, Presence};

impl World {
    /// Connections, and all that was known beyond the keys, are lost.
    pub(super) fn restart(&mut self, scope: &Scope) -> Checked {
        // No server starts within a millisecond, and none with a clock that is behind: that is
        // what a lost token relies on.
        let least = self.oracle.last_token.cast_unsigned() / 1000 + 1;
        self.now = Now::from_millis(self.now.after(1).max(least));
        self.grace = self.now.tick_after(scope.rules.turn);
        self.expire();
        self.state.restart(self.now);
        self.oracle.turn = None;
        self.gone.clear();
        self.undelivered.clear();
        self.closed.clear();
        self.touched = false;
        for holder in &mut self.oracle.holders {
            holder.bound.clear();
            holder.since = None;
        }
        for owner in 0..self.oracle.slots.len() {
            self.oracle.slots[owner] = self.slots();
        }
        for place in &mut self.oracle.queue {
            place.life = Life::Found(0, None);
            place.limit = 1;
        }
        self.read_deadlines();
        let quiet = Step::of(super::action::Action::Restart);
        self.look(quiet, scope)
    }

    /// The wall clock is set; the server looks at its locks when it notices.
    pub(super) fn set_clock(&mut self, by: i64, step: Step, scope: &Scope) -> Checked {
        self.clock_steps += 1;
        self.now.micros = self.now.micros.saturating_add_signed(by * 1000);
        self.mind_the_clock();
        self.expire();
        self.look(step, scope)
    }

    /// Whether the token's key can be lost: the token must be remembered elsewhere, or the clock be ahead of it. No
    /// lock could do without both.
    pub(super) fn may_lose_token(&self) -> bool {
        let last = self.oracle.last_token;
        let remembered = self.state.greatest_token >= last;
        self.state.token.is_some() && (remembered || self.now.micros > last.cast_unsigned())
    }

    /// Where the last token is in no key and the server has restarted since it was issued, only the clock is ahead of
    /// it. No lock could cope with a clock that is behind as well.
    fn mind_the_clock(&mut self) {
        let last = self.oracle.last_token;
        if self.state.greatest_token < last {
            self.now.micros = self.now.micros.max(last.cast_unsigned() + 1);
        }
    }

    /// A waiter that was found in the keys lives until the deadline stored there.
    pub(super) fn read_deadlines(&mut self) {
        for (owner, waiter) in &self.state.queue {
            if waiter.presence != Presence::Found {
                continue;
            }
            let queue = &mut self.oracle.queue;
            let place = queue.iter_mut().find(|of| of.owner == index(owner));
            if let Some(Life::Found(known, _)) = place.map(|place| &mut place.life) {
                *known = waiter.score;
            }
        }
    }
}
