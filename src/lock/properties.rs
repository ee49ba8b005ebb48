//! Random sequences of steps against the rules, over the in-memory state.
//!
//! A [`World`] does what a server does: it lets time pass, expires keys, closes connections,
//! restarts. Beside the state it keeps a model of its own (who was told what) and compares the two
//! after each step. The model never asks the rules; where they differ, a promise is broken.
//!
//! `make properties` runs 100,000 sequences; failing seeds are kept in `proptest-regressions/`.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::memory::Memory;
use super::{Ask, Event, Millis, Now, Owner, Presence, Refusal, Rules, State, Ticket, Way};
use super::{rules, turn};

const RULES: Rules = Rules {
    turn: 50,
    patience: 300,
    token_ttl: 2_000,
    max_waiters: 5,
};

/// How a client asks for the lock.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Try,
    Poll,
    Block,
}

#[derive(Clone, Debug)]
enum Action {
    Acquire {
        owner: u8,
        mode: Mode,
        lease: Millis,
        patience: Millis,
        once: bool,
    },
    Release {
        owner: u8,
        all: bool,
        token: Option<bool>,
    },
    ReleaseByHolder {
        all: bool,
    },
    Renew {
        owner: u8,
        lease: Millis,
    },
    Cancel {
        owner: u8,
    },
    Break,
    /// The n-th blocked request's time is up.
    TimeOut(usize),
    /// The n-th blocked request's connection closes; the queue is swept now or later.
    Disconnect(usize, bool),
    /// The last hand-off's receiver turns out to be gone.
    Undelivered,
    Sleep(Millis),
    /// Somebody deletes the lock's key.
    ForeignDelete,
    /// The token's key is lost.
    LoseToken,
    /// The server restarts: connections are lost, keys are kept.
    Restart,
}

fn action() -> impl Strategy<Value = Action> {
    let owner = 0..7u8;
    let mode = prop_oneof![
        Just(Mode::Try),
        Just(Mode::Poll),
        Just(Mode::Block),
        Just(Mode::Block)
    ];
    let lease = prop_oneof![Just(10u64), Just(100), Just(1_000), Just(5_000)];
    let patience = prop_oneof![Just(1u64), Just(40), Just(300), Just(2_000)];
    let token = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
    prop_oneof![
        8 => (owner.clone(), mode, lease.clone(), patience, any::<bool>()).prop_map(
            |(owner, mode, lease, patience, once)| Action::Acquire { owner, mode, lease, patience, once }
        ),
        2 => (owner.clone(), any::<bool>(), token)
            .prop_map(|(owner, all, token)| Action::Release { owner, all, token }),
        4 => any::<bool>().prop_map(|all| Action::ReleaseByHolder { all }),
        1 => (owner.clone(), lease).prop_map(|(owner, lease)| Action::Renew { owner, lease }),
        1 => owner.prop_map(|owner| Action::Cancel { owner }),
        1 => Just(Action::Break),
        1 => (0..5usize).prop_map(Action::TimeOut),
        2 => (0..5usize, any::<bool>()).prop_map(|(nth, swept)| Action::Disconnect(nth, swept)),
        1 => Just(Action::Undelivered),
        3 => prop_oneof![1..60u64, 1..3_000u64].prop_map(Action::Sleep),
        1 => Just(Action::ForeignDelete),
        1 => Just(Action::LoseToken),
        1 => Just(Action::Restart),
    ]
}

fn owner(name: u8) -> Owner {
    Owner::from([b'a' + name])
}

/// The state, and what clients have been told of it.
#[derive(Debug)]
struct World {
    state: Memory,
    now: Now,
    next_ticket: Ticket,
    /// Blocked requests without an answer, with their owners.
    blocked: Vec<(Ticket, Owner)>,
    /// The holder as clients know it, with its holds.
    holder: Option<(Owner, i64)>,
    last_token: i64,
    /// The last hand-off, while nothing else has happened.
    handed_off: Option<(Owner, i64)>,
}

type Checked = Result<(), TestCaseError>;

impl World {
    fn new() -> Self {
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

    fn act(&mut self, action: &Action) -> Checked {
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
            Action::TimeOut(nth) => {
                if !self.blocked.is_empty() {
                    let (ticket, owner) = self.blocked.remove(nth % self.blocked.len());
                    let events = &mut events;
                    rules::leave(&mut self.state, &owner, ticket, &RULES, self.now, events);
                    return self.check(&before, events, Some(&owner), false);
                }
            }
            Action::Disconnect(nth, swept) => {
                if !self.blocked.is_empty() {
                    let (_, owner) = self.blocked.remove(nth % self.blocked.len());
                    if let Some(mut waiter) = self.state.waiter(&owner) {
                        waiter.presence = Presence::Gone;
                        self.state.set_waiter(&owner, waiter);
                    }
                    if *swept {
                        self.state.remove(&owner);
                        turn::settle(&mut self.state, &RULES, self.now, None, &mut events);
                    }
                    return self.check(&before, &events, Some(&owner), !*swept);
                }
            }
            Action::Undelivered => {
                if let Some((owner, token)) = handed_off {
                    self.holder = None;
                    let events = &mut events;
                    rules::take_back(&mut self.state, &owner, token, &RULES, self.now, events);
                }
            }
            Action::Sleep(time) => self.sleep(*time, &mut events),
            Action::ForeignDelete => {
                self.state.free();
                self.holder = None;
                turn::settle(&mut self.state, &RULES, self.now, None, &mut events);
            }
            Action::LoseToken => self.state.token = None,
            Action::Restart => {
                // No server starts within a millisecond, which is what a lost token relies on.
                self.now = Now::from_millis(self.now.after(1));
                if self.state.expire(self.now) {
                    self.holder = None;
                }
                self.state.restart();
                self.blocked.clear();
                let kept = self.state.clone();
                turn::settle(&mut self.state, &RULES, self.now, None, &mut events);
                return self.check(&kept, &events, None, false);
            }
        }
        self.check(&before, &events, None, false)
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
    fn sleep(&mut self, time: Millis, events: &mut Vec<Event>) {
        let end = self.now.after(time);
        while let Some(due) = turn::next_due(&mut self.state).filter(|due| *due <= end) {
            self.now = Now::from_millis(due.max(self.now.millis()));
            if self.state.expire(self.now) {
                self.holder = None;
            }
            turn::settle(&mut self.state, &RULES, self.now, None, events);
            if events
                .iter()
                .any(|event| matches!(event, Event::Granted { .. }))
            {
                return;
            }
        }
        self.now = Now::from_millis(end);
        if self.state.expire(self.now) {
            self.holder = None;
        }
    }

    /// A client is told that it holds the lock now.
    fn told_granted(
        &mut self,
        owner: &Owner,
        token: i64,
        before: &Memory,
        events: &[Event],
    ) -> Checked {
        prop_assert!(
            self.holder.is_none(),
            "{:?} granted beside {:?}",
            owner,
            self.holder
        );
        prop_assert!(
            token > self.last_token,
            "token {} after {}",
            token,
            self.last_token
        );
        self.last_token = token;
        self.holder = Some((Owner::clone(owner), 1));
        // Whoever stood before it was dead.
        for (ahead, waiter, _) in &before.queue {
            if ahead == owner {
                break;
            }
            let reaped = events
                .iter()
                .any(|event| matches!(event, Event::Reaped { owner } if owner == ahead));
            let refused = waiter.presence == Presence::Gone || !self.is_queued(ahead);
            prop_assert!(reaped || refused, "{:?} overtook {:?}", owner, ahead);
            prop_assert!(
                !reaped || !matches!(waiter.presence, Presence::Blocked(_)),
                "{:?} was reaped while blocked",
                ahead
            );
        }
        Ok(())
    }

    fn is_queued(&self, owner: &Owner) -> bool {
        self.state.queue.iter().any(|entry| entry.0 == *owner)
    }

    /// Compares the state after a step with what clients were told. `left` may have left the
    /// queue by its own doing; `unswept`: the queue has not been swept yet.
    fn check(
        &mut self,
        before: &Memory,
        events: &[Event],
        left: Option<&Owner>,
        unswept: bool,
    ) -> Checked {
        let mut served = BTreeSet::new();
        for event in events {
            match event {
                Event::Granted {
                    ticket,
                    owner,
                    token,
                } => {
                    self.answer(*ticket)?;
                    let token = *token;
                    self.told_granted(owner, token, before, events)?;
                    self.handed_off = Some((Owner::clone(owner), token));
                    served.insert(Owner::clone(owner));
                }
                Event::Refused { ticket, .. }
                | Event::TakenOver { ticket }
                | Event::Cancelled { ticket } => self.answer(*ticket)?,
                Event::Reaped { owner } => {
                    self.check_dead(before, owner)?;
                    served.insert(Owner::clone(owner));
                }
                Event::WakeUp { owner } => {
                    // It was polling when it was woken; a turn that ends in the same step may
                    // have dropped it since.
                    prop_assert!(before.queue.iter().any(|entry| entry.0 == *owner));
                }
            }
        }
        self.check_order(before, &served, left)?;
        self.check_rest(unswept)
    }

    /// A blocked request gets its one answer.
    fn answer(&mut self, ticket: Ticket) -> Checked {
        let waiting = self.blocked.len();
        self.blocked.retain(|(other, _)| *other != ticket);
        prop_assert_eq!(
            self.blocked.len() + 1,
            waiting,
            "ticket {} answered twice",
            ticket
        );
        Ok(())
    }

    fn check_dead(&self, before: &Memory, owner: &Owner) -> Checked {
        let Some((_, waiter, deadline)) = before.queue.iter().find(|entry| entry.0 == *owner)
        else {
            return Err(TestCaseError::fail(format!("{owner:?} reaped, not queued")));
        };
        prop_assert!(matches!(
            waiter.presence,
            Presence::Polling | Presence::Found
        ));
        // Its deadline is over, or it had a turn or was woken with the head and did not come.
        let woken_until = self.now.millis() >= before.turn.as_ref().map_or(0, |turn| turn.until);
        prop_assert!(
            *deadline <= self.now.millis() || woken_until,
            "{:?} reaped alive",
            owner
        );
        Ok(())
    }

    /// Nobody changes places, and nobody vanishes without a reason.
    fn check_order(
        &self,
        before: &Memory,
        served: &BTreeSet<Owner>,
        left: Option<&Owner>,
    ) -> Checked {
        let now: Vec<&Owner> = self.state.queue.iter().map(|entry| &entry.0).collect();
        let mut stayed = Vec::new();
        for (owner, waiter, _) in &before.queue {
            if now.contains(&owner) {
                stayed.push(owner);
            } else {
                let gone = waiter.presence == Presence::Gone;
                let explained = served.contains(owner) || left == Some(owner) || gone;
                prop_assert!(explained, "{:?} vanished from the queue", owner);
            }
        }
        let kept: Vec<&Owner> = now.iter().copied().take(stayed.len()).collect();
        prop_assert_eq!(kept, stayed);
        Ok(())
    }

    fn check_rest(&mut self, unswept: bool) -> Checked {
        prop_assert_eq!(&self.state.holder, &self.holder);
        prop_assert_eq!(self.state.holder.is_some(), self.state.lease_end.is_some());
        // Every blocked request has its place, and no place is blocked for nobody.
        let mut places: Vec<Ticket> = Vec::new();
        for (_, waiter, _) in &self.state.queue {
            if let Presence::Blocked(ticket) = waiter.presence {
                places.push(ticket);
            }
        }
        places.sort_unstable();
        let mut asked: Vec<Ticket> = self.blocked.iter().map(|(ticket, _)| *ticket).collect();
        asked.sort_unstable();
        prop_assert_eq!(places, asked);
        // Nobody waits while the lock is free, but a polling head that has its turn.
        if self.state.holder.is_none() && !unswept {
            match self.state.queue.first() {
                None => prop_assert!(self.state.turn.is_none()),
                Some((head, waiter, _)) => {
                    prop_assert!(matches!(
                        waiter.presence,
                        Presence::Polling | Presence::Found
                    ));
                    let turn = self.state.turn.as_ref();
                    prop_assert_eq!(turn.map(|turn| &turn.owner), Some(head));
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_lock_keeps_its_promises(actions in prop::collection::vec(action(), 1..60)) {
        let mut world = World::new();
        for action in &actions {
            world.act(action)?;
        }
    }
}
