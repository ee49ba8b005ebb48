//! What time does, and what happens to the server and to the keys: leases end, clocks are set, others write.

use proptest::prelude::*;

use super::world::{Checked, World};
use crate::lock;
use crate::lock::{Millis, Now, Owner, Sharing};

impl World {
    fn look(&mut self) {
        lock::Step::new(&mut self.state, &self.rules, self.now).look();
    }

    /// What the expiry of keys does, and what that means for the holders.
    pub(super) fn expire(&mut self) {
        let now = self.now.millis();
        if self.state.expire(self.now) {
            let held_alone = self
                .holders
                .iter()
                .any(super::holders::Holder::is_exclusive);
            if held_alone {
                self.holders.clear();
            }
        }
        let ended = self.holders.take_shared_if(|of| of.lease_end < now);
        self.ended += ended.len();
    }

    /// Time passes; the server looks at the lock whenever it is due.
    pub(super) fn sleep(&mut self, time: Millis) -> Checked {
        let end = self.now.later(time);
        let mut looks = 0;
        while let Some(left) = self
            .until_due()
            .filter(|left| self.now.tick_after(*left) <= end.tick())
        {
            looks += 1;
            prop_assert!(looks < 10_000, "a lock that is due is not brought on");
            self.now = self.now.later(left);
            self.expire_in_time()?;
            self.look();
            self.learn_renewals()?;
            let granted = self.state.events.iter().any(super::checks::is_grant);
            if granted {
                return Ok(());
            }
        }
        self.now = end;
        self.expire_in_time()
    }

    /// Leases end where no connection relies on them.
    fn expire_in_time(&mut self) -> Checked {
        let bound = self.holders.iter().filter(|of| !of.bound.is_empty());
        let relied_on: Vec<Owner> = bound.map(|of| Owner::clone(&of.owner)).collect();
        self.expire();
        let lost = relied_on.iter().find(|of| self.holders.get(of).is_none());
        prop_assert!(
            lost.is_none(),
            "the lease of {:?} ended, the connection did not",
            lost
        );
        Ok(())
    }

    /// Milliseconds until the server looks at the lock by itself.
    fn until_due(&mut self) -> Option<Millis> {
        let due = lock::Step::new(&mut self.state, &self.rules, self.now).next_due();
        // A key lives through the millisecond in which it expires.
        let wall = due
            .wall
            .map(|at| at.saturating_add(1).saturating_sub(self.now.millis()));
        let tick = due.tick.map(|at| at.saturating_sub(self.now.tick()));
        wall.into_iter().chain(tick).min()
    }

    /// The server stands still. Requests of that time are unread when it looks at the lock.
    pub(super) fn stall(&mut self, time: Millis) {
        self.now = self.now.after_stall(time);
        self.expire();
        self.look();
    }

    /// The wall clock is set; the server looks at its locks when it notices.
    pub(super) fn step_clock(&mut self, millis: i64) {
        self.now.micros = self.now.micros.saturating_add_signed(millis * 1000);
        self.mind_the_clock();
        self.expire();
        self.look();
    }

    /// Where the last token is in no key and the server has restarted since it was issued, only the clock is ahead of
    /// it. No lock could cope with a clock that is behind as well.
    pub(super) fn mind_the_clock(&mut self) {
        if self.state.greatest_token < self.last_token {
            let least = self.last_token.cast_unsigned() + 1;
            self.now.micros = self.now.micros.max(least);
        }
    }

    pub(super) fn restart(&mut self) -> Checked {
        // No server starts within a millisecond, and none with a clock that is behind: that is
        // what a lost token relies on.
        let least = self.last_token.cast_unsigned() / 1000 + 1;
        let time = self.now.after(1).max(least);
        self.now = Now::from_millis(time);
        self.rules.grace = self.now.listening_after(self.rules.turn);
        self.expire();
        self.state.restart(self.now);
        self.blocked.clear();
        for holder in self.holders.iter_mut() {
            holder.bound.clear();
        }
        let kept = self.state.clone();
        self.look();
        self.check(&kept, None, false)
    }

    /// A client deletes the lock's key.
    pub(super) fn delete(&mut self) {
        self.state.lose_key();
        let lost = self.holders.take_shared_if(|_| true);
        self.ended += lost.len();
        self.holders.clear();
        self.look();
    }

    /// A client takes one of several holders out of the lock's key.
    pub(super) fn delete_holder(&mut self, nth: usize) {
        let holder = self.holders.nth(nth).filter(|of| !of.is_exclusive());
        let Some(owner) = holder.map(|of| Owner::clone(&of.owner)) else {
            return;
        };
        self.state.counts.remove(&owner);
        self.holders.remove(&owner);
        self.ended += 1;
        if self.state.counts.is_empty() {
            self.state.lose_key();
        } else {
            self.state.set_lease_of(&owner, 0);
        }
        self.look();
    }

    /// A client sets the expiry of the lock's key: the longest lease now ends with it.
    pub(super) fn set_expiry(&mut self, lease: Millis) {
        let end = self.now.after(lease);
        let last = self.holders.iter().map(|of| of.lease_end).max();
        if self.holders.is_empty() {
            return;
        }
        self.state.lease_end = Some(end);
        // Of several whose leases end last, the one whose name is the last.
        let longest = self.holders.iter().filter(|of| Some(of.lease_end) == last);
        let longest = longest.map(|of| Owner::clone(&of.owner)).max();
        for holder in self.holders.iter_mut() {
            if Some(&holder.owner) == longest.as_ref() || holder.lease_end > end {
                holder.lease_end = end;
            }
            if let Some(shared) = &mut self.state.shared {
                shared.set_lease_end(&holder.owner, holder.lease_end);
            }
        }
        self.look();
    }
}
