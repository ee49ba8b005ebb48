//! Leaving the queue without the lock: by CANCEL, or because a connection has closed or its WAIT is over.

use super::event::Event;
use super::parts::{Owner, Presence};
use super::state::State;
use super::step::Step;

impl<S: State> Step<'_, S> {
    /// Takes `owner` out of the queue. Returns whether it was in it.
    pub fn cancel(&mut self, owner: &[u8]) -> bool {
        self.drop_ended(None);
        self.leave(owner, S::remove)
    }

    /// As [`Self::cancel`]; `take_out` removes the owner from the queue.
    pub(super) fn leave(&mut self, owner: &[u8], take_out: impl FnOnce(&mut S, &[u8])) -> bool {
        let Some(waiter) = self.state.waiter(owner) else {
            return false;
        };
        take_out(self.state, owner);
        let has_left = waiter.presence == Presence::Gone;
        self.state.emit(if has_left {
            let owner = Owner::from(owner);
            Event::Left { owner }
        } else {
            let ticket = waiter.ticket();
            Event::Cancelled { ticket }
        });
        self.settle(None);
        !has_left
    }

    /// Removes waiters whose connections have closed. An owner may be named twice: it came back on another
    /// connection, which has closed as well.
    pub fn leave_gone(&mut self, owners: &[Owner]) {
        self.drop_ended(None);
        for owner in owners {
            let waiter = self.state.waiter(owner);
            if waiter.is_some_and(|waiter| waiter.presence == Presence::Gone) {
                self.state.remove(owner);
                let owner = Owner::clone(owner);
                self.state.emit(Event::Left { owner });
            }
        }
        self.settle(None);
    }
}
