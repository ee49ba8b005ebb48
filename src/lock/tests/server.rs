//! What a server does beside serving commands: it notes connections that close, deals with them later, and looks at a
//! lock when it is due. It restarts, its clock is set, and other clients change the keys.

use super::checks::renewal;
use super::life::Life;
use super::oracle::{Cause, Checked, ensure, index};
use super::world::{Lost, NAMES, Noted, World};
use crate::lock::{
    Connection, Millis, Now, Owner, Presence, Session, SharedHolders, State, Waiter, Wall,
};

impl World {
    /// A blocked request ends by itself: its place is marked, and removed later.
    pub(super) fn leave(&mut self, owner: usize, slot: usize) {
        let slot = &mut self.oracle.slots[owner][slot];
        let ticket = slot.blocked.take().unwrap_or(0);
        slot.session = false;
        for place in &mut self.oracle.queue {
            if place.owner == owner {
                place.life = Life::Left;
            }
        }
        self.noted.gone.push(owner);
        if let Some(mut waiter) = self.state.waiter(NAMES[owner])
            && waiter.presence == Presence::Blocked(ticket)
        {
            waiter.presence = Presence::Gone;
            self.state.set_waiter(NAMES[owner], waiter);
        }
    }

    /// Requests that are blocked on a connection leave. If the lock is bound to it, that is noted; its owners open
    /// another.
    pub(super) fn close_connection(&mut self, connection: Connection) {
        let is_bound = self.oracle.bound_to(connection).next().is_some();
        let fresh = self.number();
        for owner in 0..self.oracle.slots.len() {
            for slot in 0..2 {
                let of = self.oracle.slots[owner][slot];
                if of.connection == connection && of.blocked.is_some() {
                    self.leave(owner, slot);
                }
                if of.connection == connection && is_bound {
                    self.oracle.slots[owner][slot].connection = fresh;
                }
            }
        }
        if is_bound {
            self.noted.closed.push(connection);
        }
    }

    /// The server deals with what was noted, in its order.
    fn deal_with_noted(&mut self) -> Checked {
        let gone = self.noted.gone.drain(..);
        let gone: Vec<Owner> = gone.map(|of| Owner::from(NAMES[of])).collect();
        if !gone.is_empty() {
            self.step(|mut step| step.leave_gone(&gone));
            self.receive(Cause::None)?;
        }
        for lost in std::mem::take(&mut self.noted.undelivered) {
            self.take_back(lost)?;
        }
        for connection in std::mem::take(&mut self.noted.closed) {
            self.give_up_bound(connection)?;
        }
        if std::mem::take(&mut self.noted.touched) {
            self.look()?;
        }
        Ok(())
    }

    /// The holds go that a connection brought, which has closed; and no other ones.
    fn give_up_bound(&mut self, connection: Connection) -> Checked {
        let sessions = self.state.sessions();
        let relies = |of: &&Session| of.holders.iter().any(|bound| bound.0 == connection);
        let owners = sessions.filter(relies).map(|of| Owner::clone(&of.owner));
        let owners: Vec<_> = owners.collect();
        for owner in owners {
            self.step(|mut step| step.connection_closed(&owner, connection));
            self.freed_if(Cause::Closes(index(&owner), connection))?;
        }
        let stay = self.oracle.bound_to(connection);
        let stay = stay.filter(|(holder, _)| !holder.is_over(self.now));
        let stay: Vec<_> = stay.map(|(of, brought)| (of.owner, brought)).collect();
        for (owner, brought) in stay {
            if let Some(holder) = self.oracle.holder_mut(owner) {
                ensure!(holder.holds > brought, "it is not given up: {holder:?}");
                holder.bound.retain(|bound| bound.0 != connection);
            }
            self.oracle.give_up(owner, brought, None);
        }
        Ok(())
    }

    /// What was handed over is given up, and nothing that the owner got since.
    fn take_back(&mut self, lost: Lost) -> Checked {
        let Lost {
            owner,
            token,
            session,
        } = lost;
        let holder = self.oracle.holder(owner, self.now);
        let its = holder.filter(|of| of.token == Some(token));
        let known = self.stored_token(owner) == Some(token);
        let untold = its.filter(|of| known && of.untold);
        let holds = untold.map(|of| of.holds);
        self.step(|mut step| step.take_back(NAMES[owner], token, session));
        if holds == Some(1) {
            return self.freed_if(Cause::Releases(owner));
        }
        if holds.is_some() {
            self.oracle.give_up(owner, 1, session);
            if let Some(holder) = self.oracle.holder_mut(owner) {
                holder.untold = false;
            }
        }
        self.freed_if(Cause::None)
    }

    /// The server looks at the lock. Leases may end and sessions be renewed; none becomes shorter.
    pub(super) fn look(&mut self) -> Checked {
        let holders = self.oracle.holders.iter().map(|holder| holder.owner);
        let leases = holders.filter_map(|owner| Some((owner, self.stored_lease_end(owner)?)));
        let leases: Vec<_> = leases.collect();
        let due = self
            .state
            .sessions()
            .filter(|session| self.is_to_renew(session));
        let due: Vec<usize> = due.map(|session| index(&session.owner)).collect();
        self.step(|mut step| step.look());
        for (owner, _) in &leases {
            let end = self.stored_lease_end(*owner);
            let holder = self.oracle.holder_mut(*owner);
            // Renewals emit no event.
            if let Some(holder) = holder.filter(|of| !of.bound.is_empty()) {
                holder.lease_end = end.unwrap_or_default().max(holder.lease_end);
            }
        }
        self.freed_if(Cause::None)?;
        for (owner, before) in leases {
            let now = self.stored_lease_end(owner);
            let renewed = self.oracle.holds(owner) > 0 && now > Some(before);
            ensure!(
                !renewed || due.contains(&owner),
                "renewed too early: {owner}"
            );
        }
        Ok(())
    }

    /// Whether a session's lease is to be renewed.
    fn is_to_renew(&self, session: &Session) -> bool {
        let end = self.stored_lease_end(index(&session.owner));
        renewal(session, end.unwrap_or_default()) <= self.now.wall()
    }

    /// No client acts: the server does what it has to. If there is nothing, time passes.
    pub(super) fn silence(&mut self, time: Millis) -> Checked {
        if self.is_noted() {
            return self.deal_with_noted();
        }
        if self.is_overdue() {
            return self.look();
        }
        let holders = self.oracle.holders.iter();
        let relied_on = holders.filter(|of| !of.bound.is_empty() && !of.is_over(self.now));
        let relied_on: Vec<usize> = relied_on.map(|of| of.owner).collect();
        let (mut left, mut looks) = (time, 0);
        while let Some(passes) = self.until_due().filter(|passes| *passes <= left) {
            looks += 1;
            ensure!(looks < 10_000, "a lock that is due is not brought on");
            self.pass(passes);
            left -= passes;
            self.look()?;
            if self.is_noted() {
                left = 0;
                break;
            }
        }
        self.pass(left);
        let mut lost = relied_on.iter();
        let lost = lost.find(|owner| self.oracle.holds(**owner) == 0);
        ensure!(
            lost.is_none() || !self.noted.undelivered.is_empty(),
            "the lease of {lost:?} has ended, the connection has not"
        );
        Ok(())
    }

    /// Milliseconds pass.
    pub(super) fn pass(&mut self, time: Millis) {
        self.now = self.now.later(time);
        self.expire();
    }

    /// What the expiry of keys does. Of several holders the server has to tell.
    pub(super) fn expire(&mut self) {
        if self.state.expire(self.now) {
            self.oracle.holders.retain(|holder| !holder.is_exclusive());
        }
    }

    /// Connections, and all that was known beyond the keys, are lost.
    pub(super) fn restart(&mut self) -> Checked {
        // No server starts within a millisecond, and none with a clock that is behind: that is
        // what a lost token relies on.
        let least = self.oracle.last_token.cast_unsigned() / 1000 + 1;
        self.now = Now::from_millis(self.now.after(1).millis().max(least));
        self.rules.grace = self.now.listening_after(self.rules.turn);
        self.expire();
        self.state.restart(self.now);
        self.oracle.turn = None;
        self.noted = Noted::default();
        for holder in &mut self.oracle.holders {
            holder.bound.clear();
            holder.since = None;
        }
        self.connect();
        for place in &mut self.oracle.queue {
            place.life = Life::Found(Wall::default(), None);
            (place.limit, place.since) = (1, self.now.steady);
        }
        self.look()
    }

    /// The wall clock is set; the server looks at its locks when it notices.
    pub(super) fn set_clock(&mut self, by: i64) -> Checked {
        self.clock_steps = self.clock_steps.saturating_add(1);
        self.now.micros = self.now.micros.saturating_add_signed(by * 1000);
        // Where the last token is in no key and the server has restarted since it was issued, only the clock is ahead
        // of it. No lock could cope with a clock that is behind as well.
        let last = self.oracle.last_token;
        if self.state.greatest_token < last {
            self.now.micros = self.now.micros.max(last.cast_unsigned() + 1);
        }
        self.expire();
        self.look()
    }

    /// Whether the token's key can be lost: the token must be remembered elsewhere, or the clock be ahead of it. No
    /// lock could do without both.
    pub(super) fn may_lose_token(&self) -> bool {
        let last = self.oracle.last_token;
        let remembered = self.state.greatest_token >= last;
        self.state.token.is_some() && (remembered || self.now.micros > last.cast_unsigned())
    }

    /// A waiter that was found in the keys lives until the deadline stored there.
    pub(super) fn read_scores(&mut self) {
        for (owner, waiter) in &self.state.queue {
            let queue = &mut self.oracle.queue;
            let place = queue.iter_mut().find(|of| of.owner == index(owner));
            if let Some(Life::Found(known, _)) = place.map(|place| &mut place.life) {
                *known = waiter.score;
            }
        }
    }
}

// What other clients do to the keys. The server looks at the lock later in the same iteration.
impl World {
    /// The lock's key is deleted. Of several holders the server has to tell; the only one is none any more.
    pub(super) fn delete(&mut self) {
        self.state.lose_key();
        self.oracle.holders.retain(|holder| !holder.is_exclusive());
        for holder in &mut self.oracle.holders {
            holder.lost = true;
        }
        self.touch();
    }

    /// One of several holders is taken out of it.
    pub(super) fn delete_holder(&mut self, owner: usize) {
        if self.state.counts.remove(NAMES[owner]).is_none() {
            return;
        }
        if self.state.counts.is_empty() {
            return self.delete();
        }
        if let Some(holder) = self.oracle.holder_mut(owner) {
            holder.lost = true;
        }
        self.state.set_lease_of(NAMES[owner], Wall::default());
        self.touch();
    }

    /// Its expiry is set: the longest lease now ends with it, and none ends later.
    pub(super) fn set_expiry(&mut self, lease: Millis) {
        if !self.state.is_held() {
            return;
        }
        let end = self.now.after(lease);
        self.state.lease_end = Some(end);
        let longest = self.state.shared.as_ref().and_then(SharedHolders::last);
        for holder in self.oracle.holders.iter_mut().filter(|of| !of.lost) {
            let name = Owner::from(NAMES[holder.owner]);
            if holder.is_exclusive() || Some(&name) == longest.as_ref() || holder.lease_end > end {
                holder.lease_end = end;
                self.state.set_lease_of(&name, end);
            }
        }
        self.touch();
    }

    pub(super) fn set_score(&mut self, owner: usize, ahead: i64) {
        let score = self.clock_ahead(ahead);
        if let Some(waiter) = self.state.waiter(NAMES[owner]) {
            self.state
                .set_waiter(NAMES[owner], Waiter { score, ..waiter });
        }
        self.touch();
    }

    fn touch(&mut self) {
        self.noted.touched = true;
        self.stirred = true;
    }
}
