//! Comparing the state after a step with what clients were told.

use std::collections::BTreeSet;

use super::life::Life;
use super::oracle::{Checked, Queued, ensure, index};
use super::scope::Scope;
use super::world::World;
use crate::lock::memory::Memory;
use crate::lock::{Connection, Event, Holds, Millis, Owner, Presence, State, Waiter};

impl World {
    /// Compares the state after a step with what clients were told, and with the state before.
    pub(super) fn check(&mut self, before: &Memory, scope: &Scope) -> Checked {
        self.check_holder()?;
        self.check_queue()?;
        self.check_requests()?;
        self.check_session(before)?;
        self.check_turn(before)?;
        if !self.stirred {
            return self.check_rest(scope);
        }
        // Others have changed something. The server has seen to it, or will at once.
        let pending = self.touched || self.is_overdue();
        self.stirred = pending;
        if pending {
            Ok(())
        } else {
            self.check_rest(scope)
        }
    }

    /// What holds whenever the server has seen what others did.
    fn check_rest(&self, scope: &Scope) -> Checked {
        self.check_head(scope)?;
        self.check_scores(scope)?;
        self.check_due()
    }

    fn check_holder(&self) -> Checked {
        let told = self
            .oracle
            .holder
            .map(|holder| (holder.owner, holder.holds));
        let held = self.state.holder.as_ref();
        let held = held.map(|(owner, holds)| (index(owner), *holds));
        ensure!(told == held, "{told:?} was told, {held:?} holds the lock");
        ensure!(
            held.is_some() == self.state.lease_end.is_some(),
            "lease: {:?}",
            self.state.lease_end
        );
        let token = self.state.token;
        let last = self.oracle.last_token;
        ensure!(
            token.is_none_or(|token| token == last),
            "{token:?} is kept, the last was {last}"
        );
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
            ensure!(agree(*place, waiter), "{place:?}, but {waiter:?}");
        }
        Ok(())
    }

    /// Every blocked request has its place, and no place is blocked for nobody.
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

    /// The lock is bound to the connections that its holder relies on, and whoever keeps a list
    /// of them by the events has the same.
    fn check_session(&mut self, before: &Memory) -> Checked {
        let mut heard = connections(before);
        for event in &self.state.events {
            let fits = match event {
                Event::Bound { connection } => heard.insert(*connection),
                Event::Unbound { connection } => heard.remove(connection),
                _ => true,
            };
            ensure!(fits, "twice: {event:?}");
        }
        let known = connections(&self.state);
        ensure!(heard == known, "heard of {heard:?}, bound: {known:?}");
        // One that nobody noticed the loss of yet does no harm, but it must not bind anyone else.
        let bound = match self.state.session.clone() {
            Some(of) if self.stirred && self.state.holds(&of.owner) == Holds::None => Vec::new(),
            session => session.map_or_else(Vec::new, |session| session.holders),
        };
        let told = &self.oracle.bound;
        ensure!(&bound == told, "relied on: {told:?}, bound: {bound:?}");
        Ok(())
    }

    /// Waking is exact: whoever gets a turn is woken, and nobody else; but those that poll right behind
    /// a head that has been silent for a tenth of its turn. A turn that runs is not made longer.
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
                "a turn, and nobody is woken: {turn:?}"
            );
            // Those that were reaped in this step had been woken before.
            let others = woken.iter().filter(|owner| **owner != head);
            let waits = |owner: &&usize| self.oracle.queued(**owner).is_some();
            ensure!(others.filter(waits).count() == 0, "woken: {woken:?}");
            return Ok(());
        };
        ensure!(ran.until == turn.until, "{ran:?} has become {turn:?}");
        let is_silent = ran.wakes_next.is_some_and(|at| at <= self.now.tick());
        let looked = ran.wakes_next.is_some() && turn.wakes_next.is_none();
        ensure!(!looked || is_silent, "not silent for long enough: {ran:?}");
        let others: BTreeSet<usize> = woken.into_iter().filter(|of| *of != head).collect();
        if !looked {
            ensure!(others.is_empty(), "woken: {others:?}");
            return Ok(());
        }
        // Whoever asks in this very step need not be woken, and may be.
        let (before, after) = (polling_behind(before), polling_behind(&self.state));
        let missing = before.intersection(&after).find(|of| !others.contains(of));
        ensure!(missing.is_none(), "{missing:?} is not woken");
        let all: BTreeSet<usize> = before.union(&after).copied().collect();
        ensure!(others.is_subset(&all), "woken: {others:?}, behind: {all:?}");
        Ok(())
    }

    /// Nobody waits while the lock is free, but a polling head that has its turn.
    fn check_head(&self, scope: &Scope) -> Checked {
        let turn = self.state.turn.as_ref();
        let head = self.oracle.queue.first();
        let Some(head) = head.filter(|_| self.oracle.holder.is_none()) else {
            ensure!(turn.is_none(), "a turn, and nobody to take it: {turn:?}");
            return Ok(());
        };
        let polling = !matches!(head.life, Life::Blocked(_) | Life::Left);
        ensure!(polling, "the lock is free, {head:?} waits");
        let turn = turn.ok_or("the lock is free, nobody has a turn")?;
        ensure!(index(&turn.owner) == head.owner, "{turn:?}, but {head:?}");
        let left = turn.until.saturating_sub(self.now.tick());
        ensure!(
            (1..=scope.rules.turn).contains(&left),
            "the turn ends in {left} ms"
        );
        Ok(())
    }

    /// Scripts drop heads whose scores are over, up to the first whose score is not. Nobody who
    /// lives for sure may be among them.
    fn check_scores(&self, scope: &Scope) -> Checked {
        let now = self.now;
        let queue = self.state.queue.iter();
        for (owner, waiter) in queue.take_while(|(_, waiter)| waiter.score <= now.millis()) {
            let by_lua = waiter.presence == Presence::Asked && !scope.rules.intercepts;
            let lives = waiter.lives(now) && !by_lua;
            ensure!(!lives, "scripts would drop {owner:?}: {waiter:?}");
        }
        Ok(())
    }

    /// The server knows when to look at the lock again: nobody waits for something that it is not
    /// told of.
    fn check_due(&self) -> Checked {
        let wall = |at: Millis| at.cast_signed() - self.now.millis().cast_signed();
        let tick = |at: u64| at.cast_signed() - self.now.tick().cast_signed();
        let dues = [self.due.wall.map(wall), self.due.tick.map(tick)];
        let due = dues.into_iter().flatten().min().unwrap_or(i64::MAX);
        let renewal = self.state.session.as_ref().map(|of| tick(of.renew_at));
        if let Some((end, renewal)) = self.state.lease_end.map(wall).zip(renewal) {
            ensure!(renewal <= end, "renewed in {renewal} ms, ends in {end}");
        }
        let waiting = !self.state.queue.is_empty();
        let end = self.state.lease_end.map(wall).filter(|_| waiting);
        let turn = self.state.turn.as_ref().map(|turn| tick(turn.until));
        for latest in [renewal, end, turn].into_iter().flatten() {
            ensure!(due <= latest, "due in {due} ms, it should be {latest}");
        }
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

fn connections(state: &Memory) -> BTreeSet<Connection> {
    let holders = state.session.iter().flat_map(|of| &of.holders);
    holders.map(|(connection, _)| *connection).collect()
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
