//! What a server does with the rules, and what its clients are told.

use proptest::prelude::*;

use super::{Action, Mode, RULES};
use crate::lock::memory::Memory;
use crate::lock::{Ask, Event, Millis, Now, Owner, Presence, Refusal, State, Ticket, Way};
use crate::lock::{rules, turn};

fn owner(name: u8) -> Owner {
    Owner::from([b'a' + name])
}

/// The state, and what clients have been told of it.
#[derive(Debug)]
pub struct World {
    pub(super) state: Memory,
    pub(super) now: Now,
    pub(super) next_ticket: Ticket,
    /// Blocked requests without an answer, with their owners.
    pub(super) blocked: Vec<(Ticket, Owner)>,
    /// The holder as clients know it, with its holds.
    pub(super) holder: Option<(Owner, i64)>,
    pub(super) last_token: i64,
    /// The last hand-off, while nothing else has happened.
    pub(super) handed_off: Option<(Owner, i64)>,
}

pub type Checked = Result<(), TestCaseError>;

impl World {
    pub fn new() -> Self {
        Self {
            state: Memory::default(),
            now: Now::from_millis(1_700_000_000_000),
            next_ticket: 1,
            blocked: Vec::new(),
            holder: None,
            last_token: 0,
            handed_off: None,
        }
    }

    pub fn act(&mut self, action: &Action) -> Checked {
        let before = self.state.clone();
        let mut events = Vec::new();
        let handed_off = self.handed_off.take();
        match action {
            Action::Acquire {
                owner: name,
                mode,
                lease,
                patience,
                once,
            } => {
                let owner = owner(*name);
                let ask = Ask {
                    owner: &owner,
                    lease: *lease,
                    patience: *patience,
                    once: *once,
                };
                return self.acquire(&before, &ask, *mode);
            }
            Action::Release {
                owner: name,
                all,
                token,
            } => self.release(&owner(*name), *all, *token, &mut events)?,
            Action::ReleaseByHolder { all } => {
                if let Some((holder, _)) = self.holder.clone() {
                    self.release(&holder, *all, None, &mut events)?;
                }
            }
            Action::Renew { owner: name, lease } => {
                let owner = owner(*name);
                let renewed = rules::renew(&mut self.state, &owner, *lease, &RULES, self.now);
                let is_holder = self
                    .holder
                    .as_ref()
                    .is_some_and(|(holder, _)| *holder == owner);
                prop_assert_eq!(renewed.is_ok(), is_holder);
                if is_holder {
                    prop_assert_eq!(self.state.lease_end, Some(self.now.after(*lease)));
                }
            }
            Action::Cancel { owner: name } => {
                let owner = owner(*name);
                let was_waiting = before
                    .queue
                    .iter()
                    .any(|entry| entry.0 == owner && entry.1.presence != Presence::Gone);
                let cancelled =
                    rules::cancel(&mut self.state, &owner, &RULES, self.now, &mut events);
                prop_assert_eq!(cancelled, was_waiting);
                return self.check(&before, &events, Some(&owner), false);
            }
            Action::Break => {
                let held = rules::break_lock(&mut self.state, &RULES, self.now, &mut events);
                prop_assert_eq!(held, self.holder.take().is_some());
            }
            Action::TimeOut(nth) => return self.time_out(&before, *nth),
            Action::Disconnect(nth, swept) => return self.disconnect(&before, *nth, *swept),
            Action::Restart => return self.restart(),
            Action::Undelivered => {
                if let Some((owner, token)) = handed_off {
                    self.holder = None;
                    let events = &mut events;
                    rules::take_back(&mut self.state, &owner, token, &RULES, self.now, events);
                }
            }
            Action::Sleep(time) => self.sleep(*time, &mut events)?,
            Action::ForeignDelete => {
                self.state.free();
                self.holder = None;
                turn::settle(&mut self.state, &RULES, self.now, None, &mut events);
            }
            Action::LoseToken => self.state.token = None,
        }
        self.check(&before, &events, None, false)
    }

    fn time_out(&mut self, before: &Memory, nth: usize) -> Checked {
        if self.blocked.is_empty() {
            return Ok(());
        }
        let (ticket, owner) = self.blocked.remove(nth % self.blocked.len());
        let mut events = Vec::new();
        rules::leave(
            &mut self.state,
            &owner,
            ticket,
            &RULES,
            self.now,
            &mut events,
        );
        self.check(before, &events, Some(&owner), false)
    }

    fn disconnect(&mut self, before: &Memory, nth: usize, swept: bool) -> Checked {
        if self.blocked.is_empty() {
            return Ok(());
        }
        let (_, owner) = self.blocked.remove(nth % self.blocked.len());
        let mut events = Vec::new();
        if let Some(mut waiter) = self.state.waiter(&owner) {
            waiter.presence = Presence::Gone;
            self.state.set_waiter(&owner, waiter);
        }
        if swept {
            self.state.remove(&owner);
            turn::settle(&mut self.state, &RULES, self.now, None, &mut events);
        }
        self.check(before, &events, Some(&owner), !swept)
    }

    fn restart(&mut self) -> Checked {
        // No server starts within a millisecond, which is what a lost token relies on.
        self.now = Now::from_millis(self.now.after(1));
        if self.state.expire(self.now) {
            self.holder = None;
        }
        self.state.restart();
        self.blocked.clear();
        let kept = self.state.clone();
        let mut events = Vec::new();
        turn::settle(&mut self.state, &RULES, self.now, None, &mut events);
        self.check(&kept, &events, None, false)
    }

    fn acquire(&mut self, before: &Memory, ask: &Ask<'_>, mode: Mode) -> Checked {
        let mut events = Vec::new();
        let (state, now) = (&mut self.state, self.now);
        let acquired = rules::acquire(state, ask, &RULES, now, &mut events);
        if let Ok(Some(acquired)) = acquired {
            let owner = Owner::from(ask.owner);
            match &mut self.holder {
                Some((holder, holds)) if *holder == owner => {
                    prop_assert!(acquired.reentrant);
                    *holds += i64::from(!ask.once);
                    prop_assert_eq!(self.state.lease_end, Some(now.after(ask.lease)));
                    return self.check(before, &events, None, false);
                }
                _ => {
                    prop_assert!(!acquired.reentrant);
                    self.told_granted(&owner, acquired.token, before, &events)?;
                    return self.check(before, &events, Some(&owner), false);
                }
            }
        }
        prop_assert_eq!(acquired, Ok(None));
        let way = match mode {
            Mode::Try => return self.check(before, &events, None, false),
            Mode::Poll => Way::Polling,
            Mode::Block => {
                self.blocked
                    .push((self.next_ticket, Owner::from(ask.owner)));
                Way::Blocked(self.next_ticket)
            }
        };
        self.next_ticket += 1;
        let was_waiting = self.state.position(ask.owner);
        let full = self.state.queue.len() >= RULES.max_waiters;
        match rules::join(&mut self.state, ask, way, &RULES, now, &mut events) {
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
        self.check(before, &events, None, false)
    }

    fn release(
        &mut self,
        owner: &Owner,
        all: bool,
        token: Option<bool>,
        events: &mut Vec<Event>,
    ) -> Checked {
        let current = self.state.token.map(|(token, _)| token);
        let token = token.map(|right| current.unwrap_or(7) + i64::from(!right));
        let left = rules::release(&mut self.state, owner, token, all, &RULES, self.now, events);
        let holds = match &self.holder {
            Some((holder, holds)) if holder == owner => *holds,
            _ => 0,
        };
        if holds == 0 || (token.is_some() && token != current) {
            prop_assert_eq!(left, Err(Refusal::NotHeld));
            return Ok(());
        }
        let expected = if all { 0 } else { holds - 1 };
        prop_assert_eq!(left, Ok(expected));
        self.holder = (expected > 0).then(|| (Owner::clone(owner), expected));
        Ok(())
    }

    /// Time passes; the server looks at the lock whenever it is due.
    fn sleep(&mut self, time: Millis, events: &mut Vec<Event>) -> Checked {
        let end = self.now.after(time);
        let mut looks = 0;
        while let Some(due) = turn::next_due(&mut self.state).filter(|due| *due <= end) {
            looks += 1;
            prop_assert!(looks < 1_000, "a lock that is due is not brought on");
            self.now = Now::from_millis(due.max(self.now.millis()));
            if self.state.expire(self.now) {
                self.holder = None;
            }
            turn::settle(&mut self.state, &RULES, self.now, None, events);
            if events
                .iter()
                .any(|event| matches!(event, Event::Granted { .. }))
            {
                return Ok(());
            }
        }
        self.now = Now::from_millis(end);
        if self.state.expire(self.now) {
            self.holder = None;
        }
        Ok(())
    }
}
