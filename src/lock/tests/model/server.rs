//! What a server does beside serving commands: it takes notes of connections that close, sweeps them
//! later, and looks at a lock when it is due.

use super::action::Step;
use super::life::Life;
use super::oracle::{Checked, ensure};
use super::scope::Scope;
use super::world::{Lost, NAMES, World};
use crate::lock;
use crate::lock::{Owner, Presence, State};

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
            self.hear(None, None, step, scope)?;
        }
        for lost in std::mem::take(&mut self.undelivered) {
            self.take_back(lost, step, scope)?;
        }
        for connection in std::mem::take(&mut self.closed) {
            let brought = self.oracle.holds_of(connection);
            lock::Step::new(&mut self.state, &rules, now).connection_closed(connection);
            let all = self.oracle.holder.map_or(0, |holder| holder.holds) <= brought;
            if brought > 0 && !all {
                self.oracle.bound.retain(|bound| bound.0 != connection);
                self.oracle.give_up(brought, None);
            }
            self.freed_if(brought > 0 && all, step, scope)?;
        }
        if std::mem::take(&mut self.touched) {
            self.look(step, scope)?;
        }
        Ok(())
    }

    /// What was handed over is given up, and nothing that the owner got since.
    fn take_back(&mut self, lost: Lost, step: Step, scope: &Scope) -> Checked {
        let Lost {
            owner,
            token,
            session,
        } = lost;
        let rules = self.rules(scope);
        let holder = self.oracle.holder;
        let its = holder.filter(|of| of.owner == owner && of.token == Some(token));
        let known = self.state.token == Some(token);
        let untold = its.filter(|of| known && of.untold);
        lock::Step::new(&mut self.state, &rules, self.now).take_back(NAMES[owner], token, session);
        let all = untold.is_some_and(|of| of.holds == 1);
        if untold.is_some() && !all {
            self.oracle.give_up(1, session);
            if let Some(holder) = &mut self.oracle.holder {
                holder.untold = false;
            }
        }
        self.freed_if(all, step, scope)
    }

    pub(super) fn look(&mut self, step: Step, scope: &Scope) -> Checked {
        let rules = self.rules(scope);
        let (holder, end) = (self.state.holder.clone(), self.state.lease_end);
        lock::Step::new(&mut self.state, &rules, self.now).look();
        let shorter = self.state.holder == holder && self.state.lease_end < end;
        ensure!(!shorter, "the lease has become shorter: {end:?}");
        self.freed_if(false, step, scope)
    }

    /// Nobody does anything: the server does what it has to.
    pub(super) fn silence(&mut self, step: Step, scope: &Scope) -> Checked {
        if self.is_noted() {
            return self.sweep(step, scope);
        }
        let punctual = !self.is_overdue();
        let relied_on = !self.oracle.bound.is_empty();
        let ended = self.pass();
        ensure!(
            !(ended && relied_on && punctual),
            "the lease has ended, the connection has not"
        );
        if self.is_overdue() {
            self.look(step, scope)?;
            ensure!(!self.is_overdue(), "a lock that is due is not brought on");
        }
        Ok(())
    }

    /// A millisecond passes.
    pub(super) fn pass(&mut self) -> bool {
        self.now = self.now.later(1);
        self.expire()
    }

    /// What the expiry of keys does. Returns whether the lease has ended.
    pub(super) fn expire(&mut self) -> bool {
        let ended = self
            .state
            .lease_end
            .is_some_and(|end| end < self.now.millis());
        if ended {
            self.state.free();
            self.oracle.freed();
        }
        ended
    }
}
