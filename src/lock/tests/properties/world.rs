//! What a server does with the rules, and what its clients are told.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Action, Mode, RULES};
use crate::lock::memory::Memory;
use crate::lock::{self, Given};
use crate::lock::{
    Ask, Connection, Holds, Limit, Millis, Now, Owner, Presence, Refusal, Rules, State, Ticket,
    WaitMode, Waiter,
};

pub(super) fn owner(name: u8) -> Owner {
    Owner::from([b'a' + name])
}

/// The state, and what clients have been told of it.
#[derive(Debug)]
pub struct World {
    pub(super) state: Memory,
    pub(super) rules: Rules,
    pub(super) now: Now,
    pub(super) next_ticket: Ticket,
    /// Blocked requests without an answer, with their owners and the connections that they want
    /// the lock bound to.
    pub(super) blocked: Vec<(Ticket, Owner, Option<Connection>)>,
    /// The holder as clients know it, with its holds.
    pub(super) holder: Option<(Owner, i64)>,
    /// The connections that the holder relies on, with the holds they brought.
    pub(super) bound: BTreeMap<Connection, i64>,
    pub(super) last_token: i64,
    /// The last hand-off, while nothing else has happened.
    pub(super) handed_off: Option<(Owner, i64)>,
}

pub type Checked = Result<(), TestCaseError>;

impl World {
    pub fn new() -> Self {
        Self {
            state: Memory::default(),
            rules: RULES,
            now: Now::from_millis(1_700_000_000_000),
            next_ticket: 1,
            blocked: Vec::new(),
            holder: None,
            bound: BTreeMap::new(),
            last_token: 0,
            handed_off: None,
        }
    }

    /// The lock is free, as its holder knows or will find out.
    pub(super) fn freed(&mut self) {
        self.holder = None;
        self.bound.clear();
    }

    pub fn act(&mut self, action: &Action) -> Checked {
        let before = self.state.clone();
        let (rules, now) = (self.rules, self.now);
        let handed_off = self.handed_off.take();
        match action {
            Action::Acquire {
                owner: name,
                mode,
                lease,
                patience,
                once,
                session,
            } => {
                let owner = owner(*name);
                let ask = Ask {
                    owner: &owner,
                    lease: *lease,
                    keeps_longer_lease: false,
                    patience: *patience,
                    once: *once,
                    session: *session,
                    limit: Limit::EXCLUSIVE,
                };
                return self.acquire(&before, &ask, *mode);
            }
            Action::Release {
                owner: name,
                all,
                token,
                connection,
            } => self.release(&owner(*name), *all, *token, *connection)?,
            Action::ReleaseByHolder { all } => {
                if let Some((holder, _)) = self.holder.clone() {
                    self.release(&holder, *all, None, None)?;
                }
            }
            Action::Renew { owner: name, lease } => self.renew(&owner(*name), *lease)?,
            Action::Cancel { owner: name } => {
                let owner = owner(*name);
                let was_waiting = before
                    .queue
                    .iter()
                    .any(|entry| entry.0 == owner && entry.1.presence != Presence::Gone);
                let cancelled = lock::Step::new(&mut self.state, &rules, now).cancel(&owner);
                prop_assert_eq!(cancelled, was_waiting);
                return self.check(&before, Some(&owner), false);
            }
            Action::Break => {
                let held = lock::Step::new(&mut self.state, &rules, now).break_lock(&lock::Break {
                    owner: None,
                    force: true,
                });
                prop_assert_eq!(held, Ok(self.holder.is_some()));
                self.freed();
            }
            Action::Leave(nth, swept) => return self.leave(&before, *nth, *swept),
            Action::CloseConnection(connection) => self.close(*connection),
            Action::Restart => return self.restart(),
            Action::Undelivered => {
                if let Some((owner, token)) = handed_off {
                    self.freed();
                    lock::Step::new(&mut self.state, &rules, now).take_back(&owner, token, None);
                }
            }
            Action::Sleep(time) => self.sleep(*time)?,
            Action::Stall(time) => self.stall(*time),
            Action::StepClock(step) => self.step_clock(*step),
            Action::ForeignDelete => {
                self.state.free();
                self.freed();
                lock::Step::new(&mut self.state, &rules, now).look();
            }
            Action::ForeignScore(nth, score) => {
                if let Some((_, waiter)) = self.state.queue.get_mut(*nth) {
                    waiter.score = now.millis().saturating_add_signed(*score);
                }
                lock::Step::new(&mut self.state, &rules, now).look();
            }
            Action::ScriptLock { .. }
            | Action::ScriptUnlock { .. }
            | Action::ScriptLeave { .. }
            | Action::LineUp => return self.act_by_script(action, &before),
            Action::ForeignLease(lease) => {
                if self.state.holder.is_some() {
                    self.state.lease_end = Some(now.after(*lease));
                }
                lock::Step::new(&mut self.state, &rules, now).look();
            }
            Action::LoseToken => {
                self.state.token = None;
                self.mind_the_clock();
            }
        }
        self.check(&before, None, false)
    }

    fn renew(&mut self, owner: &Owner, lease: Millis) -> Checked {
        let renewed = lock::Step::new(&mut self.state, &self.rules, self.now).renew(owner, lease);
        let is_holder = self
            .holder
            .as_ref()
            .is_some_and(|(holder, _)| holder == owner);
        prop_assert_eq!(renewed.is_ok(), is_holder);
        if let Ok(set) = renewed {
            prop_assert!(set >= lease && (set == lease || !self.bound.is_empty()));
            prop_assert_eq!(self.state.lease_end, Some(self.now.after(set)));
        }
        Ok(())
    }

    fn leave(&mut self, before: &Memory, nth: usize, swept: bool) -> Checked {
        if self.blocked.is_empty() {
            return Ok(());
        }
        let (_, owner, _) = self.blocked.remove(nth % self.blocked.len());
        if let Some(mut waiter) = self.state.waiter(&owner) {
            waiter.presence = Presence::Gone;
            self.state.set_waiter(&owner, waiter);
        }
        if swept {
            let owners = [Owner::clone(&owner)];
            lock::Step::new(&mut self.state, &self.rules, self.now).leave_gone(&owners);
        }
        self.check(before, Some(&owner), !swept)
    }

    /// A connection closes that the lock may be bound to.
    fn close(&mut self, connection: Connection) {
        if let Some(holds) = self.bound.remove(&connection)
            && let Some((_, total)) = &mut self.holder
        {
            *total -= holds;
            if *total <= 0 {
                self.freed();
            }
        }
        lock::Step::new(&mut self.state, &self.rules, self.now).connection_closed(connection);
    }

    fn restart(&mut self) -> Checked {
        // No server starts within a millisecond, and none with a clock that is behind: that is
        // what a lost token relies on.
        let least = self.last_token.cast_unsigned() / 1000 + 1;
        let time = self.now.after(1).max(least);
        self.now = Now::from_millis(time);
        self.rules.grace = self.now.listening_after(self.rules.turn);
        self.expire();
        self.state.restart(self.now);
        self.blocked.clear();
        self.bound.clear();
        let kept = self.state.clone();
        lock::Step::new(&mut self.state, &self.rules, self.now).look();
        self.check(&kept, None, false)
    }

    fn acquire(&mut self, before: &Memory, ask: &Ask<'_>, mode: Mode) -> Checked {
        let (rules, now) = (self.rules, self.now);
        let acquired = lock::Step::new(&mut self.state, &rules, now).acquire(ask);
        if let Ok(Some(acquired)) = acquired {
            let owner = Owner::from(ask.owner);
            let again = self
                .holder
                .as_ref()
                .is_some_and(|(holder, _)| *holder == owner);
            prop_assert_eq!(acquired.reentrant, again);
            if again {
                self.hold_again(ask);
                let lease = self
                    .state
                    .session
                    .as_ref()
                    .map_or(0, |session| session.lease);
                let end = now.after(ask.lease.max(lease));
                prop_assert_eq!(self.state.lease_end, Some(end));
                return self.check(before, None, false);
            }
            self.told_granted(&owner, acquired.token, ask.session, before)?;
            return self.check(before, Some(&owner), false);
        }
        prop_assert_eq!(acquired, Ok(None));
        let way = match mode {
            Mode::Try => return self.check(before, None, false),
            Mode::Poll => WaitMode::Polling,
            Mode::Block => {
                let owner = Owner::from(ask.owner);
                self.blocked.push((self.next_ticket, owner, ask.session));
                WaitMode::Blocked(self.next_ticket)
            }
        };
        self.next_ticket += 1;
        let was_waiting = self.state.position(ask.owner);
        let full = self.state.queue.len() >= RULES.max_waiters;
        let mut rules_step = lock::Step::new(&mut self.state, &rules, now);
        let joined = rules_step
            .require_room(ask.owner)
            .map(|()| rules_step.join(ask, way));
        match joined {
            Ok(place) => {
                prop_assert!(was_waiting.is_some() || !full);
                prop_assert_eq!(self.state.position(ask.owner), Some(place.position - 1));
                prop_assert!(was_waiting.is_none_or(|index| index == place.position - 1));
                prop_assert!(place.retry_after >= 1);
                prop_assert!(place.retry_after <= (ask.patience / 2).max(1));
            }
            Err(refusal) => {
                prop_assert_eq!(refusal, Refusal::QueueFull);
                prop_assert!(was_waiting.is_none() && full);
                if matches!(mode, Mode::Block) {
                    self.blocked.pop();
                }
            }
        }
        self.check(before, None, false)
    }

    fn hold_again(&mut self, ask: &Ask<'_>) {
        let Some((_, holds)) = &mut self.holder else {
            return;
        };
        *holds += i64::from(!ask.once);
        match ask.session {
            Some(connection) if ask.once && !self.bound.contains_key(&connection) => {
                self.bound = BTreeMap::from([(connection, *holds)]);
            }
            Some(connection) if ask.once => self.bound = BTreeMap::from([(connection, *holds)]),
            Some(connection) => *self.bound.entry(connection).or_default() += 1,
            None => (),
        }
    }

    fn release(
        &mut self,
        owner: &Owner,
        all: bool,
        token: Option<bool>,
        connection: Option<Connection>,
    ) -> Checked {
        let current = self.state.token;
        let token = token.map(|right| current.unwrap_or(7) + i64::from(!right));
        let (rules, now) = (self.rules, self.now);
        let left = lock::Step::new(&mut self.state, &rules, now).release(&lock::Release {
            owner,
            token,
            holds: if all { Given::All } else { Given::One },
            connection,
        });
        let holds = match &self.holder {
            Some((holder, holds)) if holder == owner => *holds,
            _ => 0,
        };
        if holds == 0 {
            prop_assert_eq!(left, Err(Refusal::NotHeld));
            return Ok(());
        }
        if token.is_some() && token != current {
            prop_assert_eq!(left, Err(Refusal::OtherToken));
            return Ok(());
        }
        let expected = if all { 0 } else { holds - 1 };
        prop_assert_eq!(left, Ok(expected));
        if expected == 0 {
            self.freed();
            return Ok(());
        }
        self.gave_up_one(owner, connection)
    }

    /// The holder has one hold less, and some left.
    pub(super) fn gave_up_one(&mut self, owner: &Owner, connection: Option<Connection>) -> Checked {
        let expected = self.holder.as_ref().map_or(0, |(_, holds)| holds - 1);
        self.holder = Some((Owner::clone(owner), expected));
        // The hold given up is the asking connection's, else one that no connection brought.
        if let Some(holds) = connection.and_then(|connection| self.bound.get_mut(&connection)) {
            *holds -= 1;
        }
        if self.bound.values().sum::<i64>() > expected {
            let session = self.state.session.as_ref();
            let sum: i64 = session.map_or(0, |session| session.holders.iter().map(|of| of.1).sum());
            prop_assert_eq!(sum, expected, "all holds that remain are bound");
            self.bound = session.map_or_else(BTreeMap::new, |session| {
                session.holders.iter().copied().collect()
            });
        }
        self.bound.retain(|_, holds| *holds > 0);
        Ok(())
    }

    /// What the expiry of keys does.
    pub(super) fn expire(&mut self) -> bool {
        let ended = self.state.expire(self.now);
        if ended {
            self.freed();
        }
        ended
    }

    /// Time passes; the server looks at the lock whenever it is due.
    fn sleep(&mut self, time: Millis) -> Checked {
        let end = self.now.later(time);
        let mut looks = 0;
        while let Some(left) = self
            .until_due()
            .filter(|left| self.now.tick_after(*left) <= end.tick())
        {
            looks += 1;
            prop_assert!(looks < 10_000, "a lock that is due is not brought on");
            self.now = self.now.later(left);
            let relied_on = !self.bound.is_empty();
            let ended = self.expire();
            prop_assert!(
                !(ended && relied_on),
                "the lease ended, the connection did not"
            );
            lock::Step::new(&mut self.state, &self.rules, self.now).look();
            let granted = self.state.events.iter().any(super::checks::is_grant);
            if granted {
                return Ok(());
            }
        }
        self.now = end;
        self.expire();
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

    /// The server stands still. What was sent to it meanwhile is unread when it looks at the lock.
    fn stall(&mut self, time: Millis) {
        self.now = self.now.after_stall(time);
        self.expire();
        lock::Step::new(&mut self.state, &self.rules, self.now).look();
    }

    /// The wall clock is set; the server looks at its locks when it notices.
    fn step_clock(&mut self, millis: i64) {
        self.now.micros = self.now.micros.saturating_add_signed(millis * 1000);
        self.mind_the_clock();
        self.expire();
        lock::Step::new(&mut self.state, &self.rules, self.now).look();
    }

    /// Where the token's key was lost and the server has restarted since it was issued, nobody
    /// remembers it but the clock, and no lock could do with a clock that is behind.
    fn mind_the_clock(&mut self) {
        if self.state.token.is_none() && self.state.greatest_token < self.last_token {
            let least = self.last_token.cast_unsigned() + 1;
            self.now.micros = self.now.micros.max(least);
        }
    }

    /// Whether a polling waiter may be dropped now, as its clients understand the promise.
    pub(super) fn is_over(&self, waiter: &Waiter) -> bool {
        match waiter.presence {
            Presence::Polling | Presence::Asked => self.now.is_over(waiter.deadline),
            // By a script it may be over by its client's clock, which is not far ahead.
            Presence::Found => {
                waiter.score <= self.now.after(3_000) && self.now.is_over(self.rules.grace)
            }
            Presence::Blocked(_) | Presence::Gone => false,
        }
    }

    /// The hold count as the state has it.
    pub(super) fn stored_holds(&mut self) -> i64 {
        let holder = self
            .state
            .holder
            .as_ref()
            .map(|(owner, _)| Owner::clone(owner));
        match holder.map(|owner| self.state.holds(&owner)) {
            Some(Holds::Count(count)) => count,
            _ => 0,
        }
    }
}
