//! One of the two servers: a lock's keys, what it knows of tokens, and its clock.

use super::super::super::memory::Memory;
use super::super::oracle::index;
use super::super::world::NAMES;
use crate::lock::{Millis, Now, Owner, Rules, Step, token};

/// The least time that passes.
pub const TICK: Millis = 1_000;

/// The clock skew is a millisecond more than [`super::NEAR`], by which clocks differ: what happens in one instant here
/// takes at least so long.
pub const RULES: Rules = Rules {
    clock_skew: super::NEAR.cast_unsigned() + 1,
    ..super::super::RULES
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Master,
    /// Of the other one.
    Replica,
    /// It was the master, and no client reaches it.
    Lost,
}

/// The keys of a lock. All effects of a step are one transaction, so what a replica receives one by one are
/// the keys as each step has left them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys {
    pub holder: Option<usize>,
    pub token: Option<i64>,
    pub lease_end: Option<Millis>,
    /// The token in the key of its own, and when that key expires.
    pub kept: Option<(i64, Millis)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub role: Role,
    pub keys: Keys,
    /// The greatest token that it knows of.
    pub greatest: i64,
    /// Milliseconds by which its clock is ahead of the other's.
    pub ahead: i64,
}

impl Server {
    pub fn new(role: Role, ahead: i64) -> Self {
        Self {
            role,
            keys: Keys::default(),
            greatest: 0,
            ahead,
        }
    }

    pub fn now(&self, time: Millis) -> Now {
        Now::from_millis(time.saturating_add_signed(self.ahead))
    }

    /// What the expiry of keys does.
    pub fn expire(&mut self, now: Now) {
        let is_over = |end: Millis| end < now.millis();
        if self.keys.lease_end.is_some_and(is_over) {
            let kept = self.keys.kept;
            self.keys = Keys {
                kept,
                ..Keys::default()
            };
        }
        self.keys.kept = self.keys.kept.filter(|(_, until)| !is_over(*until));
    }

    /// Takes a step of the rules, and does with tokens what `keyspace` does: it learns that of the holder, and keeps
    /// one that is ahead of the clock.
    pub fn step<T>(&mut self, time: Millis, decide: impl FnOnce(Step<'_, Memory>) -> T) -> T {
        let now = self.now(time);
        self.learn_of_holder(now);
        let before = self.keys.token;
        let mut memory = self.memory();
        let decided = decide(Step::new(&mut memory, &RULES, now));
        self.keys.holder = memory.holder.map(|(owner, _)| index(&owner));
        (self.keys.token, self.keys.lease_end) = (memory.token, memory.lease_end);
        if before != self.keys.token {
            self.keep(before, now);
            self.keep(self.keys.token, now);
            self.learn_of_holder(now);
        }
        decided
    }

    fn memory(&self) -> Memory {
        let kept = self.keys.kept.map_or(0, |(token, _)| token);
        Memory {
            holder: self.keys.holder.map(|owner| (Owner::from(NAMES[owner]), 1)),
            token: self.keys.token,
            lease_end: self.keys.lease_end,
            greatest_token: self.greatest.max(kept),
            ..Memory::default()
        }
    }

    fn keep(&mut self, token: Option<i64>, now: Now) {
        let kept = token.and_then(|token| Some((token, token::kept_until(token, now)?)));
        self.keys.kept = kept.or(self.keys.kept);
    }

    fn learn_of_holder(&mut self, now: Now) {
        let token = self.keys.token.unwrap_or(0);
        self.greatest = token::greatest_after(self.greatest, token, &RULES, now);
    }

    /// Receives keys from the master. Those of tokens are read.
    pub fn receive(&mut self, keys: Keys, learns: bool, time: Millis) {
        if keys.kept != self.keys.kept && learns {
            let token = keys.kept.map_or(0, |(token, _)| token);
            let now = self.now(time);
            self.greatest = token::greatest_after_loading(self.greatest, token, &RULES, now);
        }
        self.keys = keys;
    }

    /// Becomes the master.
    pub fn take_over(&mut self, adds_skew: bool, time: Millis) {
        let now = self.now(time);
        if adds_skew {
            self.greatest = self.greatest.max(token::before_taking_over(&RULES, now));
        }
        self.role = Role::Master;
        self.expire(now);
    }
}
