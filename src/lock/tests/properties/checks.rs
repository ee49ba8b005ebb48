//! Comparing the state after a step with what clients were told.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::memory::Memory;
use super::holders::Holder;
use super::world::{Checked, Told, World};
use crate::lock::{
    Connection, Event, Holding, Holds, Millis, Owner, Presence, SharedHolders, Ticket,
};

/// Whether a waiter got the lock.
pub(super) fn is_grant(event: &Event) -> bool {
    matches!(event, Event::Granted { .. })
}

impl World {
    /// A client is told that it holds the lock now.
    fn told_granted(&mut self, told: Told, before: &Memory) -> Checked {
        if let Some(token) = told.token {
            prop_assert!(
                token > self.last_token,
                "token {} after {}",
                token,
                self.last_token
            );
            self.last_token = token;
        }
        self.check_overtaken(&told.owner, before)?;
        prop_assert!(self.holders.get(&told.owner).is_none());
        let session = told.session.into_iter();
        self.holders.push(Holder {
            owner: told.owner,
            limit: told.limit,
            holds: 1,
            token: told.token,
            lease_end: self.now.after(told.lease),
            bound: session.map(|connection| (connection, 1)).collect(),
        });
        Ok(())
    }

    /// All waiters before the owner that got the lock were dead.
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
        let mut ended = 0;
        let events = self.state.events.clone();
        for event in &events {
            match event {
                Event::Granted {
                    ticket,
                    owner,
                    token,
                    ..
                } => {
                    let asked = self.answer(*ticket)?;
                    let told = Told {
                        owner: Owner::clone(owner),
                        token: Some(*token),
                        ..asked
                    };
                    self.told_granted(told, before)?;
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
                Event::Acquired { .. } => {
                    let told = self.told.take();
                    let told = told.ok_or_else(|| TestCaseError::fail("acquired in silence"))?;
                    self.told_granted(told, before)?;
                }
                Event::LeaseEnded { .. } => ended += 1,
                Event::HeldAgain { .. }
                | Event::Released { .. }
                | Event::Enqueued
                | Event::Cancelled { ticket: None }
                | Event::Left
                | Event::Bound { .. }
                | Event::Unbound { .. } => (),
            }
        }
        prop_assert_eq!(ended, std::mem::take(&mut self.ended));
        self.over_at_once = None;
        prop_assert!(self.told.take().is_none(), "told, and not acquired");
        self.check_count(before, &events)?;
        self.check_order(before, &served, left)?;
        self.check_session(before, &events)?;
        self.learn_renewals()?;
        self.check_rest(unswept)?;
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

    /// The lock is bound to the connections that its holders rely on, and a list of them kept from the events is the
    /// same.
    fn check_session(&mut self, before: &Memory, events: &[Event]) -> Checked {
        let mut told = connections(before);
        for event in events {
            match event {
                Event::Bound { connection } => prop_assert!(told.insert(*connection)),
                Event::Unbound { connection } => prop_assert!(told.remove(connection)),
                _ => (),
            }
        }
        prop_assert_eq!(&told, &connections(&self.state));
        for holder in self.holders.iter() {
            let session = self.session_of(&holder.owner);
            let bound = session.into_iter().flat_map(|session| session.holders);
            prop_assert_eq!(&bound.collect::<BTreeMap<_, _>>(), &holder.bound);
            prop_assert!(holder.bound.values().sum::<i64>() <= holder.holds);
        }
        Ok(())
    }

    /// Renewals emit no event. None makes a lease shorter, and none comes too late.
    pub(super) fn learn_renewals(&mut self) -> Checked {
        let leases = leases(&self.state);
        for holder in self.holders.iter_mut().filter(|of| !of.bound.is_empty()) {
            let end = leases.get(&holder.owner).copied().unwrap_or(0);
            prop_assert!(end >= holder.lease_end, "{:?} until {}", holder, end);
            holder.lease_end = end;
        }
        Ok(())
    }

    /// A blocked request gets its one answer. Returns what it asked for.
    fn answer(&mut self, ticket: Ticket) -> Result<Told, TestCaseError> {
        let mut blocked = self.blocked.iter();
        let index = blocked.position(|(other, _)| *other == ticket);
        let Some(index) = index else {
            return Err(TestCaseError::fail(format!(
                "ticket {ticket} answered twice"
            )));
        };
        Ok(self.blocked.remove(index).1)
    }

    fn check_dead(&self, before: &Memory, owner: &Owner) -> Checked {
        if self.over_at_once.as_ref() == Some(owner) {
            return Ok(());
        }
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

    /// Waiters keep their order, and none vanishes without a reason.
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
        self.check_holders()?;
        // Every blocked request has its place, and every blocked place a request.
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
        self.check_head(unswept)
    }

    /// The holders are those that clients know, each with its own holds, token and lease; they tolerate each other;
    /// and the lock's key lasts as long as the last lease.
    fn check_holders(&mut self) -> Checked {
        let leases = leases(&self.state);
        let told = self.holders.iter();
        let told: BTreeMap<_, _> = told
            .map(|of| (Owner::clone(&of.owner), of.lease_end))
            .collect();
        prop_assert_eq!(&leases, &told);
        prop_assert_eq!(self.state.lease_end, leases.values().copied().max());
        prop_assert!(self.holders.tolerate_each_other(), "{:?}", self.holders);
        for holder in self.holders.iter() {
            prop_assert_eq!(self.state.holds(&holder.owner), Holds::Count(holder.holds));
            let several = self.state.shared.as_ref();
            let several = several.and_then(|shared| shared.get(&holder.owner));
            let (limit, token) = match several {
                Some(known) => (known.limit.shown(), Some(known.token)),
                None => (1, self.state.token),
            };
            prop_assert_eq!((limit, token), (holder.limit, holder.token));
        }
        Ok(())
    }

    /// At rest the head cannot have the lock, and lives; or it polls, and has its turn. `unswept`: or its connection
    /// has closed, and it is about to leave.
    fn check_head(&mut self, unswept: bool) -> Checked {
        let turn = self.state.turn.as_ref();
        let Some((head, waiter)) = self.state.queue.first() else {
            prop_assert!(turn.is_none());
            return Ok(());
        };
        if unswept && waiter.presence == Presence::Gone {
            prop_assert!(turn.is_none());
            return Ok(());
        }
        let polls = matches!(
            waiter.presence,
            Presence::Polling | Presence::Found | Presence::Asked
        );
        if self.holders.have_room(waiter.limit.shown()) {
            prop_assert!(polls, "{:?} waits for a lock that it can have", head);
            prop_assert_eq!(turn.map(|turn| &turn.owner), Some(head));
            return Ok(());
        }
        prop_assert!(turn.is_none());
        let is_over = match waiter.presence {
            Presence::Found => {
                waiter.score <= self.now.millis() && self.now.is_over(self.rules.grace)
            }
            _ => self.is_over(waiter),
        };
        let shared = self.state.shared.is_some();
        prop_assert!(
            !shared || !polls || !is_over,
            "{:?} is dead and blocks others",
            head
        );
        Ok(())
    }
}

/// The sessions of all holders.
fn connections(state: &Memory) -> BTreeSet<Connection> {
    let shared = state.shared.iter().flat_map(SharedHolders::iter);
    let sessions = shared.filter_map(|(_, holder)| holder.session());
    let sessions = sessions.chain(&state.session);
    let holders = sessions.flat_map(|session| &session.holders);
    holders.map(|(connection, _)| *connection).collect()
}

/// The holders and the ends of their leases, from the state.
fn leases(state: &Memory) -> BTreeMap<Owner, Millis> {
    let only = state.holder.iter();
    let only = only.map(|(owner, _)| (Owner::clone(owner), state.lease_end.unwrap_or(0)));
    let shared = state.shared.iter().flat_map(SharedHolders::iter);
    let shared = shared.map(|(owner, holder)| (Owner::clone(owner), holder.lease_end));
    only.chain(shared).collect()
}
