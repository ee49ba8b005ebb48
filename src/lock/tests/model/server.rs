//! What a server does beside serving commands: it takes notes of connections that close, sweeps them
//! later, and looks at a lock when it is due.

use super::action::Step;
use super::holders::Leaving;
use super::life::Life;
use super::oracle::{Cause, Checked, ensure};
use super::scope::Scope;
use super::world::{Lost, NAMES, World};
use crate::lock;
use crate::lock::{Connection, Millis, Owner, Presence, Queueing};

impl World {
    /// A blocked request ends by itself: its place is marked, and swept later.
    pub(super) fn leave(&mut self, owner: usize, slot: usize) {
        let slot = &mut self.oracle.slots[owner][slot];
        let ticket = slot.blocked.take().unwrap_or(0);
        slot.session = false;
        for place in &mut self.oracle.queue {
            if place.owner == owner {
                place.life = Life::Left;
            }
        }
        self.gone.push(owner);
        if let Some(mut waiter) = self.state.waiter(NAMES[owner])
            && waiter.presence == Presence::Blocked(ticket)
        {
            waiter.presence = Presence::Gone;
            self.state.set_waiter(NAMES[owner], waiter);
        }
    }

    pub(super) fn close(&mut self, owner: usize, slot: usize) {
        let of = self.oracle.slots[owner][slot];
        if of.blocked.is_some() {
            self.leave(owner, slot);
        }
        if self.oracle.holds_of(of.connection) > 0 {
            self.close_bound(owner, of.connection);
        }
    }

    /// The server sweeps what was noted, in its order.
    pub(super) fn sweep(&mut self, step: Step, scope: &Scope) -> Checked {
        let (rules, now) = (self.rules(scope), self.now);
        let gone: Vec<Owner> = self
            .gone
            .drain(..)
            .map(|of| Owner::from(NAMES[of]))
            .collect();
        if !gone.is_empty() {
            lock::Step::new(&mut self.state, &rules, now).leave_gone(&gone);
            self.hear(Cause::NONE, step, scope)?;
        }
        for lost in std::mem::take(&mut self.undelivered) {
            self.take_back(lost, step, scope)?;
        }
        for connection in std::mem::take(&mut self.closed) {
            self.give_up_bound(connection, step, scope)?;
        }
        if std::mem::take(&mut self.touched) {
            self.look(step, scope)?;
        }
        Ok(())
    }

    /// The holds go that a connection brought, which has closed; and no other ones.
    fn give_up_bound(&mut self, connection: Connection, step: Step, scope: &Scope) -> Checked {
        let (rules, now) = (self.rules(scope), self.now);
        let holder = self.oracle.bound_to(connection);
        let holder = holder.filter(|holder| !holder.is_over(now)).cloned();
        let brought = self.oracle.holds_of(connection);
        lock::Step::new(&mut self.state, &rules, now).connection_closed(connection);
        let Some(holder) = holder else {
            return self.freed_if(Leaving::None, step, scope);
        };
        if holder.holds <= brought {
            return self.freed_if(Leaving::One(holder.owner), step, scope);
        }
        if let Some(holder) = self.oracle.holder_mut(holder.owner) {
            holder.bound.retain(|bound| bound.0 != connection);
        }
        self.oracle.give_up(holder.owner, brought, None);
        self.freed_if(Leaving::None, step, scope)
    }

    /// What was handed over is given up, and nothing that the owner got since.
    fn take_back(&mut self, lost: Lost, step: Step, scope: &Scope) -> Checked {
        let Lost {
            owner,
            token,
            session,
        } = lost;
        let rules = self.rules(scope);
        let holder = self.oracle.holder(owner, self.now);
        let its = holder.filter(|of| of.token == Some(token));
        let known = self.stored_token(owner) == Some(token);
        let untold = its.filter(|of| known && of.untold);
        let holds = untold.map(|of| of.holds);
        lock::Step::new(&mut self.state, &rules, self.now).take_back(NAMES[owner], token, session);
        if holds == Some(1) {
            return self.freed_if(Leaving::One(owner), step, scope);
        }
        if holds.is_some() {
            self.oracle.give_up(owner, 1, session);
            if let Some(holder) = self.oracle.holder_mut(owner) {
                holder.untold = false;
            }
        }
        self.freed_if(Leaving::None, step, scope)
    }

    /// The server looks at the lock. Leases may end and sessions be renewed; none becomes shorter.
    pub(super) fn look(&mut self, step: Step, scope: &Scope) -> Checked {
        let rules = self.rules(scope);
        let leases: Vec<_> = self.leases().collect();
        lock::Step::new(&mut self.state, &rules, self.now).look();
        self.freed_if(Leaving::None, step, scope)?;
        for (owner, before) in leases {
            let now = self.stored_lease_end(owner);
            let shorter = self.oracle.is_holder(owner) && now < Some(before);
            ensure!(!shorter, "the lease has become shorter: {before}, {now:?}");
        }
        Ok(())
    }

    /// The holders and the ends of their leases, from the keys.
    fn leases(&self) -> impl Iterator<Item = (usize, Millis)> {
        let holders = self.oracle.holders.iter().map(|holder| holder.owner);
        holders.filter_map(|owner| Some((owner, self.stored_lease_end(owner)?)))
    }

    /// No client acts: the server does what it has to.
    pub(super) fn silence(&mut self, step: Step, scope: &Scope) -> Checked {
        if self.is_noted() {
            return self.sweep(step, scope);
        }
        let punctual = !self.is_overdue();
        let holders = self.oracle.holders.iter();
        let relied_on = holders.filter(|of| !of.bound.is_empty() && !of.is_over(self.now));
        let relied_on: Vec<usize> = relied_on.map(|of| of.owner).collect();
        self.pass();
        if self.is_overdue() {
            self.look(step, scope)?;
            ensure!(!self.is_overdue(), "a lock that is due is not brought on");
        }
        let lost = relied_on
            .iter()
            .find(|owner| !self.oracle.is_holder(**owner));
        ensure!(
            lost.is_none() || !punctual,
            "the lease of {lost:?} has ended, the connection has not"
        );
        Ok(())
    }

    /// A millisecond passes.
    pub(super) fn pass(&mut self) {
        self.now = self.now.later(1);
        self.expire();
    }

    /// What the expiry of keys does. Of several holders the server has to tell.
    pub(super) fn expire(&mut self) {
        if self.state.expire(self.now) {
            self.oracle.holders.retain(|holder| !holder.is_exclusive());
        }
    }
}
