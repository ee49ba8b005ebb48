//! What a server does with the rules, and what its clients are told.

use proptest::prelude::*;

use super::super::memory::Memory;
use super::holders::Holders;
use super::{Action, Mode, RULES};
use crate::lock::{self, Given};
use crate::lock::{
    Acquired, Ask, Connection, Limit, Millis, Now, Owner, Presence, Queueing, Refusal, Rules,
    Session, Ticket, WaitMode, Waiter,
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
    /// Blocked requests without an answer, with what they asked for.
    pub(super) blocked: Vec<(Ticket, Told)>,
    /// The holders as clients know them.
    pub(super) holders: Holders,
    /// How many shared holders have lost the lock, which the server has to tell once for each.
    pub(super) ended: usize,
    /// What the owner that asks has been told, if it is a holder from now on.
    pub(super) told: Option<Told>,
    /// A waiter that is dead by the end of the step in which it asks.
    pub(super) over_at_once: Option<Owner>,
    pub(super) last_token: i64,
    /// The last hand-off, while nothing else has happened.
    pub(super) handed_off: Option<(Owner, i64)>,
}

/// What an owner is told that becomes a holder.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) owner: Owner,
    pub(super) limit: u32,
    /// None by a script.
    pub(super) token: Option<i64>,
    pub(super) lease: Millis,
    pub(super) session: Option<Connection>,
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
            holders: Holders::default(),
            ended: 0,
            told: None,
            over_at_once: None,
            last_token: 0,
            handed_off: None,
        }
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
                limit,
                once,
                keeps,
                session,
            } => {
                let owner = owner(*name);
                let ask = Ask {
                    owner: &owner,
                    lease: *lease,
                    keeps_longer_lease: *keeps,
                    patience: *patience,
                    once: *once,
                    session: *session,
                    limit: Limit::read(*limit),
                };
                return self.acquire(&before, &ask, *mode);
            }
            Action::Release {
                owner: name,
                all,
                token,
                connection,
            } => self.release(&owner(*name), *all, *token, *connection)?,
            Action::ReleaseByHolder { nth, all } => {
                let holder = self.holders.nth(*nth);
                if let Some(holder) = holder.map(|of| Owner::clone(&of.owner)) {
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
            Action::Break(name) => self.break_lock(name.map(owner))?,
            Action::Leave(nth, swept) => return self.leave(&before, *nth, *swept),
            Action::CloseConnection(connection) => {
                self.holders.close(*connection);
                lock::Step::new(&mut self.state, &rules, now).connection_closed(*connection);
            }
            Action::Restart => return self.restart(),
            Action::Undelivered => {
                if let Some((owner, token)) = handed_off {
                    self.holders.remove(&owner);
                    lock::Step::new(&mut self.state, &rules, now).take_back(&owner, token, None);
                }
            }
            Action::Sleep(time) => self.sleep(*time)?,
            Action::Stall(time) => self.stall(*time),
            Action::StepClock(step) => self.step_clock(*step),
            Action::ForeignDelete => self.delete(),
            Action::ForeignDeleteHolder(nth) => self.delete_holder(*nth),
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
            Action::ForeignLease(lease) => self.set_expiry(*lease),
            Action::LoseToken => {
                self.state.token = None;
                for holder in self.holders.iter_mut().filter(|of| of.is_exclusive()) {
                    holder.token = None;
                }
                self.mind_the_clock();
            }
        }
        self.check(&before, None, false)
    }

    fn renew(&mut self, owner: &Owner, lease: Millis) -> Checked {
        let renewed = lock::Step::new(&mut self.state, &self.rules, self.now).renew(owner, lease);
        let Some(holder) = self.holders.get_mut(owner) else {
            prop_assert_eq!(renewed, Err(Refusal::NotHeld));
            return Ok(());
        };
        let Ok(set) = renewed else {
            return Err(TestCaseError::fail(format!("not renewed: {renewed:?}")));
        };
        prop_assert!(set >= lease && (set == lease || !holder.bound.is_empty()));
        holder.lease_end = self.now.after(set);
        Ok(())
    }

    /// Takes the lock from all its holders, or from one.
    fn break_lock(&mut self, owner: Option<Owner>) -> Checked {
        let held = match &owner {
            Some(owner) => self.holders.get(owner).is_some(),
            None => !self.holders.is_empty(),
        };
        let request = lock::TakeAway {
            owner: owner.as_deref(),
            force: true,
        };
        let broken = lock::Step::new(&mut self.state, &self.rules, self.now).break_lock(&request);
        prop_assert_eq!(broken, Ok(held));
        match owner {
            Some(owner) => self.holders.remove(&owner),
            None => self.holders.clear(),
        }
        Ok(())
    }

    fn leave(&mut self, before: &Memory, nth: usize, swept: bool) -> Checked {
        if self.blocked.is_empty() {
            return Ok(());
        }
        let (_, asked) = self.blocked.remove(nth % self.blocked.len());
        let owner = asked.owner;
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

    fn acquire(&mut self, before: &Memory, ask: &Ask<'_>, mode: Mode) -> Checked {
        let (rules, now) = (self.rules, self.now);
        let acquired = lock::Step::new(&mut self.state, &rules, now).acquire(ask);
        if self.holders.get(ask.owner).is_some() {
            self.hold_again(ask, acquired)?;
            return self.check(before, None, false);
        }
        let owner = Owner::from(ask.owner);
        match acquired {
            Ok(Some(acquired)) => {
                prop_assert!(!acquired.reentrant);
                self.told = Some(Told {
                    owner: Owner::clone(&owner),
                    limit: ask.limit.shown(),
                    token: Some(acquired.token),
                    lease: ask.lease,
                    session: ask.session,
                });
                return self.check(before, Some(&owner), false);
            }
            // Its blocked request was served in this step, which asked for another limit.
            Err(Refusal::OtherLimit) => {
                prop_assert!(before.position_of(ask.owner).is_some());
                return self.check(before, None, false);
            }
            _ => prop_assert_eq!(acquired, Ok(None)),
        }
        self.check_refused(ask)?;
        let way = match mode {
            Mode::Try => {
                lock::Step::new(&mut self.state, &rules, now).decline();
                return self.check(before, None, false);
            }
            Mode::Poll => WaitMode::Polling,
            Mode::Block => {
                let asked = Told {
                    owner,
                    limit: ask.limit.shown(),
                    token: None,
                    lease: ask.lease,
                    session: ask.session,
                };
                self.blocked.push((self.next_ticket, asked));
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

    /// An owner that is told nil cannot have the lock, or others are ahead.
    fn check_refused(&mut self, ask: &Ask<'_>) -> Checked {
        let head = self.state.waiter_at(0).map(|(head, _)| head);
        let is_next = head.is_none_or(|head| *head == *ask.owner);
        let served = self
            .state
            .events
            .iter()
            .filter(|of| super::checks::is_grant(of))
            .count();
        let has_room = served == 0 && self.holders.have_room(ask.limit.shown());
        prop_assert!(
            !is_next || !has_room,
            "{:?} is refused a lock that it can have",
            ask
        );
        Ok(())
    }

    /// A holder has asked again.
    fn hold_again(
        &mut self,
        ask: &Ask<'_>,
        acquired: Result<Option<Acquired>, Refusal>,
    ) -> Checked {
        let now = self.now;
        let session = self.session_of(ask.owner);
        let Some(holder) = self.holders.get_mut(ask.owner) else {
            return Ok(());
        };
        if !holder.is_exclusive() && holder.limit != ask.limit.shown() {
            prop_assert_eq!(acquired, Err(Refusal::OtherLimit));
            return Ok(());
        }
        let Ok(Some(acquired)) = acquired else {
            return Err(TestCaseError::fail(format!(
                "a holder is told {acquired:?}"
            )));
        };
        prop_assert!(acquired.reentrant);
        match holder.token {
            Some(token) => prop_assert_eq!(acquired.token, token),
            None => prop_assert!(acquired.token > self.last_token),
        }
        holder.token = Some(acquired.token);
        self.last_token = self.last_token.max(acquired.token);
        holder.hold_again(ask.once, ask.session);
        let relied_on = session.map_or(0, |session| session.lease);
        let keeps = ask.keeps_longer_lease && holder.lease_end > now.after(ask.lease);
        if !keeps {
            holder.lease_end = now.after(ask.lease.max(relied_on));
        }
        Ok(())
    }

    /// What the rules know of the connections that an owner relies on.
    pub(super) fn session_of(&self, owner: &[u8]) -> Option<Session> {
        match &self.state.shared {
            Some(shared) => shared.get(owner)?.session().cloned(),
            None => self.state.session.clone().filter(|of| *of.owner == *owner),
        }
    }

    fn release(
        &mut self,
        owner: &Owner,
        all: bool,
        token: Option<bool>,
        connection: Option<Connection>,
    ) -> Checked {
        let holder = self.holders.get(owner);
        let current = holder.and_then(|holder| holder.token);
        let holds = holder.map_or(0, |holder| holder.holds);
        let token = token.map(|right| current.unwrap_or(7) + i64::from(!right));
        let (rules, now) = (self.rules, self.now);
        let left = lock::Step::new(&mut self.state, &rules, now).release(&lock::GiveUp {
            owner,
            token,
            holds: if all { Given::All } else { Given::One },
            connection,
        });
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
            self.holders.remove(owner);
            return Ok(());
        }
        self.gave_up_one(owner, connection)
    }

    /// A holder has one hold less, and some left.
    pub(super) fn gave_up_one(&mut self, owner: &Owner, connection: Option<Connection>) -> Checked {
        let session = self.session_of(owner);
        let Some(holder) = self.holders.get_mut(owner) else {
            return Ok(());
        };
        holder.holds -= 1;
        // The hold given up is the asking connection's, else one that no connection brought.
        if let Some(holds) = connection.and_then(|connection| holder.bound.get_mut(&connection)) {
            *holds -= 1;
        }
        if holder.bound.values().sum::<i64>() > holder.holds {
            let bound = session.map(|session| session.holders).unwrap_or_default();
            let sum: i64 = bound.iter().map(|of| of.1).sum();
            prop_assert_eq!(sum, holder.holds, "all holds that remain are bound");
            holder.bound = bound.into_iter().collect();
        }
        holder.bound.retain(|_, holds| *holds > 0);
        Ok(())
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
}
