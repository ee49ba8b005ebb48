//! Comparing the state after a step with what clients were told.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::world::{Checked, World};
use crate::lock::memory::Memory;
use crate::lock::{Event, Owner, Presence, Ticket};

impl World {
    /// A client is told that it holds the lock now.
    pub(super) fn told_granted(
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
    pub(super) fn check(
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
