//! Comparing the state after a step with what clients were told.

use std::collections::{BTreeMap, BTreeSet};

use super::action::Action;
use super::holders::fits;
use super::life::{Life, heard_after};
use super::memory::Memory;
use super::oracle::{Checked, Queued, ensure, index};
use super::world::{NAMES, World};
use crate::lock::{Connection, Event, Holds, Owner, Presence, Session, State, Waiter, Wall};

impl World {
    /// Compares the state after a step with what clients were told, and with the state before.
    pub(super) fn check(&mut self, before: &Memory, action: Action) -> Checked {
        self.check_holders()?;
        self.check_queue()?;
        self.check_requests()?;
        self.check_session(before)?;
        // Many may have passed while time did.
        if !matches!(action, Action::Silence(2..)) {
            self.check_turn(before)?;
        }
        self.check_changed_scores(before, action)?;
        // Others have changed something. The server has seen to it, or will at once.
        self.stirred = self.stirred && (self.noted.touched || self.is_overdue());
        if self.stirred {
            return Ok(());
        }
        self.check_head()?;
        self.check_scores()
    }

    /// The holders are those that clients know, each with its own holds, limit, token and lease, and the lock's key
    /// lasts as long as the last lease. Their number is one that each of them tolerates.
    fn check_holders(&mut self) -> Checked {
        let names: Vec<usize> = match &self.state.shared {
            Some(shared) => shared.iter().map(|(owner, _)| index(owner)).collect(),
            None => self.state.holder.iter().map(|of| index(&of.0)).collect(),
        };
        let mut told: Vec<usize> = self.oracle.holders.iter().map(|of| of.owner).collect();
        told.sort_unstable();
        ensure!(told == names, "{told:?} were told, {names:?} hold the lock");
        for owner in &names {
            self.check_one(*owner)?;
        }
        let ends = names.iter().map(|owner| self.stored_lease_end(*owner));
        let last = ends.max().flatten();
        let is_held = self.state.is_held();
        let expiry = self.state.lease_end;
        ensure!(
            expiry == last.filter(|_| is_held) || self.noted.touched,
            "the key lasts until {expiry:?}, the last lease until {last:?}"
        );
        let limits: Vec<u32> = self.oracle.holders.iter().map(|of| of.limit).collect();
        let all_fit = limits
            .first()
            .is_none_or(|first| fits(&limits[1..], *first));
        ensure!(all_fit, "{names:?}, and they tolerate {limits:?}");
        Ok(())
    }

    /// What is known of one holder is what it was told.
    fn check_one(&mut self, owner: usize) -> Checked {
        let is_held = self.state.is_held();
        let holds = match self.state.holds(NAMES[owner]) {
            Holds::Count(holds) => holds,
            _ => 0,
        };
        let shared = self.state.shared.as_ref();
        let shared = shared.and_then(|shared| shared.get(NAMES[owner]));
        let limit = shared.map_or(1, |holder| holder.terms.limit.shown());
        let (token, end) = (self.stored_token(owner), self.stored_lease_end(owner));
        let (held, end) = ((holds, limit, token), end.unwrap_or_default());
        let Some(told) = self.oracle.holder_mut(owner) else {
            return Ok(());
        };
        let holds = if told.lost || !is_held { 0 } else { told.holds };
        let is_lost = told.is_exclusive() && token.is_none();
        let its = if is_lost { None } else { told.token };
        ensure!(held == (holds, told.limit, its), "{told:?}, but {held:?}");
        if told.lost {
            return Ok(());
        }
        // Renewals emit no event.
        let fits = end == told.lease_end || end > told.lease_end && !told.bound.is_empty();
        ensure!(fits, "{told:?}, but it ends at {end:?}");
        told.lease_end = end;
        Ok(())
    }

    /// The queue is what the owners have joined, in that order.
    fn check_queue(&self) -> Checked {
        let queue = self.state.queue.iter();
        let queued: Vec<usize> = queue.map(|entry| index(&entry.0)).collect();
        let queue = self.oracle.queue.iter();
        let joined: Vec<usize> = queue.map(|place| place.owner).collect();
        ensure!(queued == joined, "joined: {joined:?}, queued: {queued:?}");
        for (place, (_, waiter)) in self.oracle.queue.iter().zip(&self.state.queue) {
            let agree = agree(*place, waiter) && place.limit == waiter.terms.limit.shown();
            ensure!(agree, "{place:?}, but {waiter:?}");
        }
        Ok(())
    }

    /// Every blocked request has its place, and every blocked place a request.
    fn check_requests(&self) -> Checked {
        let mut blocked = BTreeSet::new();
        for place in &self.oracle.queue {
            if let Life::Blocked(ticket) = place.life {
                blocked.insert((place.owner, ticket));
            }
        }
        let mut asked = BTreeSet::new();
        for (owner, slots) in self.oracle.slots.iter().enumerate() {
            asked.extend(slots.iter().filter_map(|slot| Some((owner, slot.blocked?))));
        }
        ensure!(blocked == asked, "blocked: {asked:?}, queued: {blocked:?}");
        Ok(())
    }

    /// The lock is bound to the connections that its holder relies on, and a list of them kept from the events is the
    /// same.
    fn check_session(&self, before: &Memory) -> Checked {
        let mut heard = connections(before);
        for event in &self.state.events {
            let fits = match event {
                Event::Bound { connection, owner } => heard.insert((*connection, owner.clone())),
                Event::Unbound { connection, owner } => heard.remove(&(*connection, owner.clone())),
                _ => true,
            };
            ensure!(fits, "twice: {event:?}");
        }
        let known = connections(&self.state);
        ensure!(heard == known, "heard of {heard:?}, bound: {known:?}");
        // A lost session that has not been noticed yet does no harm, but it must not bind another owner.
        let is_lost =
            |session: &&Session| self.stirred && self.oracle.holds(index(&session.owner)) == 0;
        let sessions = self.state.sessions().filter(|session| !is_lost(session));
        let bound = sessions.map(|session| (index(&session.owner), &session.holders));
        let told = self.oracle.holders.iter().filter(|of| !of.bound.is_empty());
        let told: BTreeMap<_, _> = told.map(|of| (of.owner, &of.bound)).collect();
        let bound: BTreeMap<_, _> = bound.collect();
        ensure!(told == bound, "relied on: {told:?}, bound: {bound:?}");
        Ok(())
    }

    /// Waking is exact: only a waiter that gets a turn is woken, and those that poll right behind a head that has been
    /// silent for a tenth of its turn. A running turn is not made longer.
    fn check_turn(&self, before: &Memory) -> Checked {
        let mut woken = BTreeSet::new();
        for event in &self.state.events {
            if let Event::WakeUp { owner } = event {
                woken.insert(index(owner));
            }
        }
        let Some(turn) = self.state.turn.as_ref() else {
            return Ok(());
        };
        let head = index(&turn.owner);
        // By a script of its own, a waiter may have left and joined again.
        let since = |state: &Memory| {
            let mut queue = state.queue.iter();
            let entry = queue.find(|(owner, _)| *owner == turn.owner);
            entry.map(|(_, waiter)| waiter.since)
        };
        let ran = before.turn.as_ref();
        let ran = ran.filter(|ran| ran.owner == turn.owner && since(before) == since(&self.state));
        let Some(ran) = ran else {
            ensure!(
                woken.contains(&head),
                "a turn, and no waiter is woken: {turn:?}"
            );
            let now = heard_after(self.now, 0);
            let silent = (turn.until.since(now) / 10).max(1);
            ensure!(turn.wakes_next == Some(now.after(silent)), "{turn:?}");
            // Those that were reaped in this step had been woken before.
            let others = woken.iter().filter(|owner| **owner != head);
            let waits = |owner: &&usize| self.oracle.queued(**owner).is_some();
            ensure!(others.filter(waits).count() == 0, "woken: {woken:?}");
            return Ok(());
        };
        ensure!(ran.until == turn.until, "{ran:?} has become {turn:?}");
        let is_silent = ran.wakes_next.is_some_and(|at| at <= self.now.heard);
        let looked = ran.wakes_next.is_some() && turn.wakes_next.is_none();
        ensure!(!looked || is_silent, "not silent for long enough: {ran:?}");
        let others: BTreeSet<usize> = woken.into_iter().filter(|of| *of != head).collect();
        if !looked {
            ensure!(others.is_empty(), "woken: {others:?}");
            return Ok(());
        }
        // A waiter that asks in this very step may be woken or not.
        let (before, after) = (polling_behind(before), polling_behind(&self.state));
        let missing = before.intersection(&after).find(|of| !others.contains(of));
        ensure!(missing.is_none(), "{missing:?} is not woken");
        let all: BTreeSet<usize> = before.union(&after).copied().collect();
        ensure!(others.is_subset(&all), "woken: {others:?}, behind: {all:?}");
        Ok(())
    }

    /// At rest the head cannot have the lock; or it polls, and has its turn. No lease is over, and a dead head keeps no
    /// waiter behind it from joining the holders.
    fn check_head(&self) -> Checked {
        let over = self.oracle.holders.iter().find(|of| of.is_over(self.now));
        ensure!(over.is_none(), "its lease is over: {over:?}");
        let turn = self.state.turn.as_ref();
        let Some(head) = self.oracle.queue.first() else {
            ensure!(turn.is_none(), "a turn, and no waiter: {turn:?}");
            return Ok(());
        };
        if !self.oracle.has_room(head.limit, self.now) {
            ensure!(turn.is_none(), "a turn, and no room: {turn:?}");
            let clock = self.now.wall();
            let lives = head.life.lasts(self.now, self.rules.grace, clock);
            let shared = self.oracle.holders.iter().all(|of| !of.is_exclusive());
            let removed = head.life != Life::Left || self.noted.gone.is_empty();
            ensure!(
                lives || !shared || !removed,
                "{head:?} is dead, and keeps others waiting"
            );
            return Ok(());
        }
        let polling = !matches!(head.life, Life::Blocked(_) | Life::Left);
        ensure!(polling, "the lock can be had, {head:?} waits");
        let turn = turn.ok_or("the lock can be had, no waiter has a turn")?;
        ensure!(index(&turn.owner) == head.owner, "{turn:?}, but {head:?}");
        let left = turn.until.since(heard_after(self.now, 0));
        ensure!(
            (1..=self.rules.turn).contains(&left),
            "the turn ends in {left} ms"
        );
        Ok(())
    }
}

/// Those that poll right behind the head.
fn polling_behind(state: &Memory) -> BTreeSet<usize> {
    let polls = |entry: &&(Owner, Waiter)| {
        !matches!(entry.1.presence, Presence::Blocked(_) | Presence::Gone)
    };
    let behind = state.queue.iter().skip(1).take_while(polls);
    behind.map(|entry| index(&entry.0)).collect()
}

/// The connections that holds are bound to, and their owners.
pub(super) fn connections(state: &Memory) -> BTreeSet<(Connection, Owner)> {
    let sessions = state.sessions();
    let holders = sessions.flat_map(|of| of.holders.iter().map(|(bound, _)| (*bound, &of.owner)));
    holders
        .map(|(bound, owner)| (bound, Owner::clone(owner)))
        .collect()
}

/// When a session is to be renewed whose lease ends then: a third of it is over.
pub(super) fn renewal(session: &Session, end: Wall) -> Wall {
    let third = (session.lease / 3).max(1);
    end.after(third).before(session.lease)
}

/// Whether the server sees a waiter as it was told.
fn agree(place: Queued, waiter: &Waiter) -> bool {
    match (place.life, waiter.presence) {
        (Life::Blocked(told), Presence::Blocked(ticket)) => told == ticket,
        (Life::Left, Presence::Gone) | (Life::Found(..), Presence::Found) => true,
        (Life::Polling(until), Presence::Polling) | (Life::Asked(until), Presence::Asked) => {
            waiter.deadline == until
        }
        _ => false,
    }
}
