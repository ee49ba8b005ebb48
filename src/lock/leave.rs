//! Leaving the queue without the lock: by CANCEL, or because a connection has closed or its WAIT is over.

use std::collections::HashSet;

use super::clock::Millis;
use super::event::Event;
use super::state::{Owner, Presence, State};
use super::step::Step;

impl<S: State> Step<'_, S> {
    /// Takes `owner` out of the queue. Returns whether it was in it.
    pub fn cancel(&mut self, owner: &[u8]) -> bool {
        self.drop_ended(None);
        self.leave(owner, S::remove)
    }

    /// As [`Self::cancel`]; `take_out` removes the owner from the queue.
    pub(super) fn leave(&mut self, owner: &[u8], take_out: impl FnOnce(&mut S, &[u8])) -> bool {
        let position = self.state.position(owner);
        let Some((index, waiter)) = position.zip(self.state.waiter(owner)) else {
            return false;
        };
        take_out(self.state, owner);
        self.lessen_behind(index, waiter.patience);
        self.state.emit(match waiter.presence {
            Presence::Blocked(ticket) => Event::Cancelled {
                ticket: Some(ticket),
            },
            Presence::Polling | Presence::Found | Presence::Asked => {
                Event::Cancelled { ticket: None }
            }
            Presence::Gone => Event::Left,
        });
        self.settle(None);
        waiter.presence != Presence::Gone
    }

    /// Removes waiters whose connections have closed. An owner may be named twice: it came back on another
    /// connection, which has closed as well.
    pub fn leave_gone(&mut self, owners: &[Owner]) {
        self.drop_ended(None);
        let mut named = HashSet::new();
        let gone: Vec<(usize, Owner, Millis)> = owners
            .iter()
            .filter_map(|owner| {
                let waiter = self.state.waiter(owner)?;
                let gone = waiter.presence == Presence::Gone && named.insert(Owner::clone(owner));
                let index = self.state.position(owner).filter(|_| gone)?;
                Some((index, Owner::clone(owner), waiter.patience))
            })
            .collect();
        self.lessen_behind_all(&gone);
        let gone: Vec<Owner> = gone.into_iter().map(|(_, owner, _)| owner).collect();
        self.state.remove_all(&gone);
        for _ in &gone {
            self.state.emit(Event::Left);
        }
        self.settle(None);
    }
}
