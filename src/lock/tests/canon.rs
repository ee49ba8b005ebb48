//! When two worlds are the same: instants count from now, tokens and tickets by what they mean, and
//! owners and connections by what happened to them, not by their names.
//!
//! What the rules only ever compare with now is cut off where it cannot make a difference any
//! more. Two worlds that look the same here go on in the same way.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::life::{Life, heard_after};
use super::oracle::{Slot, index};
use super::scope::Scope;
use super::world::{NAMES, World};
use crate::lock::{Heard, Presence, Session, Tick, Wall};

/// Longer distances count as this one, in milliseconds.
const LONG: i64 = 60;

/// A distance from now. Times in the distant past count as one.
fn from_now(at: u64, now: u64, least: i64) -> i64 {
    let distance = at.cast_signed().saturating_sub(now.cast_signed());
    distance.clamp(least, LONG)
}

/// The indices of those that differ from all before.
fn firsts<T: PartialEq>(all: &[T]) -> Vec<usize> {
    let first = |index: &usize| !all[..*index].contains(&all[*index]);
    (0..all.len()).filter(first).collect()
}

impl World {
    /// A fingerprint: equal for worlds that behave alike.
    pub fn key(&self, scope: &Scope) -> u64 {
        let mut profiles = self.profiles(scope);
        profiles.sort_unstable();
        let common = self.common();
        let mut hasher = DefaultHasher::new();
        (common, profiles).hash(&mut hasher);
        hasher.finish()
    }

    /// One owner of each sort.
    pub fn distinct_owners(&self, scope: &Scope) -> Vec<usize> {
        firsts(&self.profiles(scope))
    }

    /// One connection of each sort.
    pub fn distinct_slots(&self, owner: usize, scope: &Scope) -> Vec<usize> {
        let slots = self.oracle.slots[owner].map(|slot| self.slot(slot));
        firsts(&slots[..scope.slots])
    }

    fn profiles(&self, scope: &Scope) -> Vec<impl Ord + Hash> {
        let owners = 0..scope.owners.len();
        owners.map(|owner| self.profile(owner, scope)).collect()
    }

    fn wall(&self, at: Wall, least: i64) -> i64 {
        from_now(at.millis(), self.now.wall().millis(), least)
    }

    fn tick(&self, at: Tick) -> i64 {
        at.since(self.now.tick()).cast_signed().min(LONG)
    }

    fn heard(&self, at: Heard) -> i64 {
        let (start, now) = (Heard::default(), heard_after(self.now, 0));
        from_now(at.since(start), now.since(start), -1)
    }

    /// What is there once.
    fn common(&self) -> impl Hash {
        let (state, noted, last) = (&self.state, &self.noted, self.oracle.last_token);
        let wall = |at: Option<Wall>| at.map(|at| self.wall(at, -1));
        let heard = |at: Option<Heard>| at.map(|at| self.heard(at));
        let turn = state.turn.as_ref();
        let turn = turn.map(|turn| (self.heard(turn.until), heard(turn.wakes_next)));
        let token = (state.token.is_some(), state.greatest_token >= last);
        let due = (wall(self.due.wall), self.due.tick.map(|at| self.tick(at)));
        let listens = self.heard(self.now.heard.after(1));
        let clock = (self.heard(self.rules.grace), listens, self.clock_steps);
        let unseen = (noted.touched, self.stirred);
        let noted = (unseen, noted.undelivered.len(), noted.closed.len());
        let held = (wall(state.lease_end), state.shared.is_some());
        (held, turn, token, last > 0, due, clock, noted)
    }

    /// What happened to one owner.
    fn profile(&self, owner: usize, scope: &Scope) -> impl Ord + Hash {
        let mut kinds = scope.owners.iter();
        let kind = kinds.position(|kind| *kind == scope.owners[owner]);
        let mut holders = self.oracle.holders.iter();
        let holder = holders.find(|of| of.owner == owner);
        let holds = holder.map(|of| {
            let told = (of.untold, of.token.is_some(), of.lost);
            (told, of.holds, of.limit, self.wall(of.lease_end, -1))
        });
        let waits = self.state.position_of(NAMES[owner]).map(|place| {
            let (_, waiter) = &self.state.queue[place];
            // A score that is over by more makes scripts give smaller ones: the least is low enough that this does not
            // go on for ever.
            let over = self.wall(waiter.score, -8);
            let (presence, deadline) = match waiter.presence {
                Presence::Blocked(_) => (1, None),
                Presence::Gone => (2, None),
                Presence::Found => (3, None),
                Presence::Polling => (4, Some(self.heard(waiter.deadline))),
                Presence::Asked => (5, Some(self.heard(waiter.deadline))),
            };
            let seen = (presence, deadline, waiter.terms.limit.shown());
            (place, self.life(owner), over, seen)
        });
        let mut sessions = self.state.sessions();
        let session = sessions.find(|of| index(&of.owner) == owner);
        let bound = session.map(|of| (of.lease, self.closed_of(of)));
        let turn = self.state.turn.as_ref();
        let has_turn = turn.is_some_and(|of| index(&of.owner) == owner);
        let gone = self.noted.gone.iter().filter(|gone| **gone == owner);
        let gone = gone.count();
        let mut lost = self.noted.undelivered.iter();
        let lost = lost.rfind(|lost| lost.owner == owner);
        let lost = lost.map(|lost| {
            let its = holder.and_then(|holder| holder.token);
            let bound = lost.session.map(|session| self.bound(session).0);
            (its == Some(lost.token), bound)
        });
        let mut slots = self.oracle.slots[owner].map(|slot| self.slot(slot));
        slots.sort_unstable();
        (kind, holds, waits, bound, has_turn, gone, lost, slots)
    }

    fn life(&self, owner: usize) -> Option<i64> {
        match self.oracle.queued(owner)?.life {
            Life::Polling(until) | Life::Asked(until) | Life::Found(_, Some(until)) => {
                Some(self.heard(until))
            }
            _ => None,
        }
    }

    /// What happened to a connection: blocked, with SESSION; its holds and their order.
    fn slot(&self, slot: Slot) -> (bool, bool, (usize, i64)) {
        let bound = self.bound(slot.connection);
        (slot.blocked.is_some(), slot.session, bound)
    }

    /// The connections of a session that have closed and are still bound.
    fn closed_of(&self, session: &Session) -> Vec<(usize, i64)> {
        let bound = session.holders.iter().map(|of| of.0);
        let closed = bound.filter(|of| self.noted.closed.contains(of));
        let mut closed: Vec<_> = closed.map(|of| self.bound(of)).collect();
        closed.sort_unstable();
        closed
    }

    /// Which of a holder's connections this is, and the holds that it brought.
    fn bound(&self, connection: u64) -> (usize, i64) {
        let sessions = self.state.sessions();
        let mut bound = sessions.flat_map(|of| of.holders.iter().zip(1..));
        let of_it = bound.find(|((of, _), _)| *of == connection);
        of_it.map_or((0, 0), |((_, holds), order)| (order, *holds))
    }
}
