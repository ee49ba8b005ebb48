//! When two worlds are the same: instants count from now, tokens and tickets by what they mean, and
//! owners and connections by what happened to them, not by their names.
//!
//! What the rules only ever compare with now is cut off where it cannot make a difference any
//! more. Two worlds that look the same here go on in the same way.

use std::hash::{DefaultHasher, Hasher};

use super::life::{Life, heard_after};
use super::oracle::{Slot, index};
use super::scope::Scope;
use super::world::World;
use crate::lock::{Heard, Presence, Waiter};

/// Identifies a class of worlds that behave alike.
pub type Key = u128;

/// Longer distances count as this one, in milliseconds.
const LONG: i64 = 60;

/// A distance from now as a number above 0. Times in the distant past count as one.
fn from_now(at: u64, now: u64, least: i64) -> u8 {
    let distance = at.cast_signed().saturating_sub(now.cast_signed());
    u8::try_from(distance.clamp(least, LONG) + LONG + 1).unwrap_or(u8::MAX)
}

impl World {
    /// A fingerprint: equal for worlds that behave alike.
    pub fn key(&self, scope: &Scope) -> Key {
        let mut profiles: Vec<Profile> = self.profiles(scope);
        profiles.sort_unstable();
        let common = self.common();
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(salt);
            hasher.write(&common);
            for profile in &profiles {
                hasher.write(profile);
            }
            u128::from(hasher.finish())
        };
        half(1) << 64 | half(2)
    }

    /// One owner of each sort.
    pub fn distinct_owners(&self, scope: &Scope) -> Vec<usize> {
        let profiles = self.profiles(scope);
        let first = |owner: &usize| !profiles[..*owner].contains(&profiles[*owner]);
        (0..profiles.len()).filter(first).collect()
    }

    /// One connection of each sort.
    pub fn distinct_slots(&self, owner: usize, scope: &Scope) -> Vec<usize> {
        let slots = self.oracle.slots[owner].map(|slot| self.slot(slot));
        let first = |slot: &usize| !slots[..*slot].contains(&slots[*slot]);
        (0..scope.slots).filter(first).collect()
    }

    fn profiles(&self, scope: &Scope) -> Vec<Profile> {
        (0..scope.owners.len())
            .map(|owner| self.profile(owner, scope))
            .collect()
    }

    fn wall(&self, at: u64, least: i64) -> u8 {
        from_now(at, self.now.millis(), least)
    }

    fn tick(&self, at: u64) -> u8 {
        from_now(at, self.now.tick(), 0)
    }

    fn heard(&self, at: Heard) -> u8 {
        let (start, now) = (Heard::default(), heard_after(self.now, 0));
        from_now(at.since(start), now.since(start), -1)
    }

    /// What is there once.
    fn common(&self) -> [u8; 16] {
        let last = self.oracle.last_token;
        let turn = self.state.turn.as_ref();
        [
            self.state.lease_end.map_or(0, |at| self.wall(at, -1)),
            turn.map_or(0, |turn| self.heard(turn.until)),
            turn.and_then(|turn| turn.wakes_next)
                .map_or(0, |at| self.heard(at)),
            u8::from(self.state.token.is_some()),
            u8::from(self.state.greatest_token >= last),
            u8::from(last > 0),
            self.heard(self.rules.grace),
            self.heard(self.now.heard.after(1)),
            self.due.wall.map_or(0, |at| self.wall(at, -1)),
            self.due.tick.map_or(0, |at| self.tick(at)),
            u8::from(self.touched),
            self.clock_steps,
            self.undelivered.len().try_into().unwrap_or(u8::MAX),
            self.closed.len().try_into().unwrap_or(u8::MAX),
            u8::from(self.stirred),
            u8::from(self.state.shared.is_some()),
        ]
    }

    /// What happened to one owner.
    fn profile(&self, owner: usize, scope: &Scope) -> Profile {
        let mut profile = [0; PROFILE];
        let (about, slots) = profile.split_at_mut(22);
        let mut kinds = scope.owners.iter();
        let kind = kinds.position(|kind| *kind == scope.owners[owner]);
        about[0] = kind.and_then(|kind| kind.try_into().ok()).unwrap_or(0);
        let mut holders = self.oracle.holders.iter();
        let holder = holders.find(|of| of.owner == owner);
        if let Some(holder) = holder {
            about[1] = holder.holds.try_into().unwrap_or(u8::MAX);
            about[2] = 1 + u8::from(holder.untold);
            about[3] = u8::from(holder.token.is_some());
            about[16] = holder.limit.try_into().unwrap_or(u8::MAX);
            about[17] = self.wall(holder.lease_end, -1);
            about[18] = u8::from(holder.lost);
        }
        let mut queue = self.state.queue.iter();
        if let Some(place) = queue.position(|entry| index(&entry.0) == owner) {
            let (_, waiter) = &self.state.queue[place];
            about[4] = u8::try_from(place + 1).unwrap_or(u8::MAX);
            about[5] = self.life(owner);
            about[6..8].copy_from_slice(&self.waiter(waiter));
            about[9] = presence(waiter.presence);
            about[19] = waiter.limit.shown().try_into().unwrap_or(u8::MAX);
        }
        let turn = self.state.turn.as_ref();
        about[10] = u8::from(turn.is_some_and(|of| index(&of.owner) == owner));
        let mut sessions = self.sessions();
        if let Some(session) = sessions.find(|of| index(&of.owner) == owner) {
            about[11] = 1;
            about[20] = self.tick(session.renew_at);
            about[21] = session.lease.try_into().unwrap_or(u8::MAX);
        }
        let notes = self.gone.iter().filter(|gone| **gone == owner);
        about[12] = notes.count().try_into().unwrap_or(u8::MAX);
        for lost in self.undelivered.iter().filter(|lost| lost.owner == owner) {
            let its = holder.and_then(|holder| holder.token);
            about[13] = 1 + u8::from(its == Some(lost.token));
            let bound = lost.session.map_or(0, |session| self.bound(session).0);
            about[14] = bound + u8::from(lost.session.is_some());
        }
        let mut known = self.oracle.slots[owner].map(|slot| self.slot(slot));
        known.sort_unstable();
        slots[..8].copy_from_slice(&known.concat());
        if about[11] > 0 {
            slots[8..].copy_from_slice(&self.closed_slots(owner));
        }
        profile
    }

    fn life(&self, owner: usize) -> u8 {
        match self.oracle.queued(owner).map(|place| place.life) {
            Some(Life::Polling(until) | Life::Asked(until) | Life::Found(_, Some(until))) => {
                self.heard(until)
            }
            _ => 0,
        }
    }

    /// What the rules and the keys know of a waiter's time. A score that is over by more makes
    /// scripts give smaller ones: the least is low enough that this does not go on for ever.
    fn waiter(&self, waiter: &Waiter) -> [u8; 2] {
        let score = self.wall(waiter.score, -8);
        match waiter.presence {
            Presence::Polling | Presence::Asked => [self.heard(waiter.deadline), score],
            Presence::Blocked(_) | Presence::Found | Presence::Gone => [0, score],
        }
    }

    /// What happened to a connection: blocked, with SESSION; its holds and their order.
    fn slot(&self, slot: Slot) -> [u8; 4] {
        let (order, holds) = self.bound(slot.connection);
        let blocked = u8::from(slot.blocked.is_some());
        [blocked, u8::from(slot.session), order, holds]
    }

    /// The connections of an owner that have closed and are still bound.
    fn closed_slots(&self, owner: usize) -> [u8; 4] {
        let mut sessions = self.sessions();
        let session = sessions.find(|of| index(&of.owner) == owner);
        let bound = session.map_or(&[][..], |of| &of.holders);
        let closed = self.closed.iter();
        let closed = closed.filter(|of| bound.iter().any(|(bound, _)| bound == *of));
        let mut closed: Vec<_> = closed.map(|of| self.bound(*of)).collect();
        closed.sort_unstable();
        closed.resize(2, (0, 0));
        [closed[0].0, closed[0].1, closed[1].0, closed[1].1]
    }

    /// Which of a holder's connections this is, and the holds that it brought.
    fn bound(&self, connection: u64) -> (u8, u8) {
        for session in self.sessions() {
            let mut holders = session.holders.iter().zip(1..);
            if let Some(((_, holds), order)) = holders.find(|((of, _), _)| *of == connection) {
                return (order, (*holds).try_into().unwrap_or(u8::MAX));
            }
        }
        (0, 0)
    }
}

const PROFILE: usize = 34;
type Profile = [u8; PROFILE];

fn presence(presence: Presence) -> u8 {
    match presence {
        Presence::Blocked(_) => 1,
        Presence::Gone => 2,
        Presence::Polling => 3,
        Presence::Found => 4,
        Presence::Asked => 5,
    }
}
