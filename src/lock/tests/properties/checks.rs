//! Comparing the state after a step with what clients were told.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::world::{Checked, World};
use crate::lock::memory::Memory;
use crate::lock::{Connection, Event, Holds, Owner, Presence, State, Ticket};

/// Whether a waiter got the lock.
pub(super) fn is_grant(event: &Event) -> bool {
    matches!(event, Event::Granted { .. })
}

impl World {
    /// A client is told that it holds the lock now.
    pub(super) fn told_granted(
        &mut self,
        owner: &Owner,
        token: i64,
        session: Option<Connection>,
        before: &Memory,
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
        self.bound = session
            .into_iter()
            .map(|connection| (connection, 1))
            .collect();
        self.check_overtaken(owner, before)
    }

    /// Whoever stood before the owner that got the lock was dead.
    pub(super) fn check_overtaken(&self, owner: &Owner, before: &Memory) -> Checked {
        let events = &self.state.events;
        for (ahead, waiter) in &before.queue {
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
    pub(super) fn check(
        &mut self,
        before: &Memory,
        left: Option<&Owner>,
        unswept: bool,
    ) -> Checked {
        let mut served = BTreeSet::new();
        let events = self.state.events.clone();
        for event in &events {
            match event {
                Event::Granted {
                    ticket,
                    owner,
                    token,
                    ..
                } => {
                    let session = self.answer(*ticket)?;
                    self.told_granted(owner, *token, session, before)?;
                    self.handed_off = Some((Owner::clone(owner), *token));
                    served.insert(Owner::clone(owner));
                }
                Event::TakenOver { ticket }
                | Event::Cancelled {
                    ticket: Some(ticket),
                } => {
                    self.answer(*ticket)?;
                }
                Event::Reaped { owner } => {
                    self.check_dead(before, owner)?;
                    served.insert(Owner::clone(owner));
                }
                Event::WakeUp { owner } => {
                    // It was polling when it was woken; a turn that ends in the same step may
                    // have dropped it since.
                    prop_assert!(before.queue.iter().any(|entry| entry.0 == *owner));
                }
                Event::Acquired { .. }
                | Event::HeldAgain { .. }
                | Event::Released { .. }
                | Event::LeaseEnded { .. }
                | Event::Enqueued
                | Event::Cancelled { ticket: None }
                | Event::Left
                | Event::Bound { .. }
                | Event::Unbound { .. } => (),
            }
        }
        self.check_count(before, &events)?;
        self.check_order(before, &served, left)?;
        self.check_rest(unswept)?;
        self.check_session(before, &events)?;
        self.state.events.clear();
        Ok(())
    }

    /// Each join and each way out of the queue is told once: subscribers can count.
    fn check_count(&self, before: &Memory, events: &[Event]) -> Checked {
        let mut expected = before.queue.len();
        for event in events {
            match event {
                Event::Enqueued => expected += 1,
                Event::Granted { .. }
                | Event::Acquired {
                    waited: Some(_), ..
                }
                | Event::Cancelled { .. }
                | Event::Left
                | Event::Reaped { .. } => expected -= 1,
                _ => (),
            }
        }
        prop_assert_eq!(self.state.queue.len(), expected);
        Ok(())
    }

    /// The lock is bound to the connections that its holder relies on, and whoever keeps a list
    /// of them by the events has the same.
    fn check_session(&mut self, before: &Memory, events: &[Event]) -> Checked {
        let connections = |state: &Memory| -> BTreeSet<Connection> {
            let holders = state.session.iter().flat_map(|session| &session.holders);
            holders.map(|(connection, _)| *connection).collect()
        };
        let mut told = connections(before);
        for event in events {
            match event {
                Event::Bound { connection } => prop_assert!(told.insert(*connection)),
                Event::Unbound { connection } => prop_assert!(told.remove(connection)),
                _ => (),
            }
        }
        prop_assert_eq!(&told, &connections(&self.state));
        // One that nobody noticed the loss of yet does no harm, but it must not bind anyone else.
        let bound: BTreeMap<_, _> = match self.state.session.clone() {
            Some(session) if self.state.holds(&session.owner) != Holds::None => {
                session.holders.into_iter().collect()
            }
            _ => BTreeMap::new(),
        };
        prop_assert_eq!(&bound, &self.bound);
        prop_assert!(bound.values().sum::<i64>() <= self.stored_holds());
        Ok(())
    }

    /// A blocked request gets its one answer. Returns the connection it wants the lock bound to.
    fn answer(&mut self, ticket: Ticket) -> Result<Option<Connection>, TestCaseError> {
        let index = self
            .blocked
            .iter()
            .position(|(other, _, _)| *other == ticket);
        let Some(index) = index else {
            return Err(TestCaseError::fail(format!(
                "ticket {ticket} answered twice"
            )));
        };
        Ok(self.blocked.remove(index).2)
    }

    fn check_dead(&self, before: &Memory, owner: &Owner) -> Checked {
        let Some((_, waiter)) = before.queue.iter().find(|entry| entry.0 == *owner) else {
            return Err(TestCaseError::fail(format!("{owner:?} reaped, not queued")));
        };
        prop_assert!(matches!(
            waiter.presence,
            Presence::Polling | Presence::Found | Presence::Asked
        ));
        // Its deadline is over, or it had a turn or was woken with the head and did not come.
        let turn = before.turn.as_ref();
        let woken_until = turn.is_none_or(|turn| self.now.is_over(turn.until));
        prop_assert!(
            self.is_over(waiter) || woken_until,
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
        for (owner, waiter) in &before.queue {
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
        for (_, waiter) in &self.state.queue {
            if let Presence::Blocked(ticket) = waiter.presence {
                places.push(ticket);
            }
        }
        places.sort_unstable();
        let mut asked: Vec<Ticket> = self.blocked.iter().map(|blocked| blocked.0).collect();
        asked.sort_unstable();
        prop_assert_eq!(places, asked);
        // Nobody waits while the lock is free, but a polling head that has its turn.
        if self.state.holder.is_none() && !unswept {
            match self.state.queue.first() {
                None => prop_assert!(self.state.turn.is_none()),
                Some((head, waiter)) => {
                    prop_assert!(matches!(
                        waiter.presence,
                        Presence::Polling | Presence::Found | Presence::Asked
                    ));
                    let turn = self.state.turn.as_ref();
                    prop_assert_eq!(turn.map(|turn| &turn.owner), Some(head));
                }
            }
        }
        Ok(())
    }
}
