//! When a lock has to be looked at again, if ever.

use super::clock::{Heard, Tick, Wall};
use super::parts::Presence;
use super::state::State;
use super::step::Step;

/// When a lock has to be looked at again if no command touches it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// By the wall clock, once this millisecond is over: a lease ends or is to be renewed, or the score of a live head
    /// passes.
    pub wall: Option<Wall>,
    /// By the steady clock: a turn ends, or the waiters behind a silent head are to be woken.
    pub tick: Option<Tick>,
}

impl<S: State> Step<'_, S> {
    /// When the lock has to be looked at again. Never if it has no waiters, no session and no shared holders,
    /// or if it is held without a lease and all waiters were found in the keys.
    pub fn next_due(&mut self) -> Due {
        let renewal = self.next_renewal();
        let renewal = renewal.map(|(at, _)| at.before(1));
        if self.state.waiting() == 0 {
            let shared = self.state.shared();
            let first = shared.and_then(|shared| shared.first_end());
            return Due {
                wall: first.into_iter().chain(renewal).min(),
                tick: None,
            };
        }
        self.queue_due(renewal)
    }

    /// As [`Step::next_due`], of a lock with waiters whose session is to be renewed after this millisecond.
    fn queue_due(&mut self, renewal: Option<Wall>) -> Due {
        let turn = self.state.turn();
        if turn.is_none() && !self.state.is_held() {
            // The lock became free without a command, as when a lease ends: the head is still to be served.
            return Due {
                wall: None,
                tick: Some(self.now.tick()),
            };
        }
        let turn_ends = turn.as_ref().map(|turn| turn.until);
        let wakes_next = turn.and_then(|turn| turn.wakes_next);
        let score = self.head_score_ends();
        let (lives_until, last_score) = self.unfit_head_ends();
        let walls = [self.first_lease_end(), renewal, score, last_score];
        Due {
            wall: walls.into_iter().flatten().min(),
            tick: [turn_ends, wakes_next, lives_until]
                .into_iter()
                .flatten()
                .map(|instant| self.now.tick_at(instant))
                .min(),
        }
    }

    /// When a head that the holders do not tolerate counts as dead: then the waiters behind it may join the
    /// holders.
    fn unfit_head_ends(&mut self) -> (Option<Heard>, Option<Wall>) {
        if self.state.shared().is_none() {
            return (None, None);
        }
        let now = self.now;
        let head = self.state.waiter_at(0).map(|(_, waiter)| waiter);
        let Some(head) = head.filter(|head| head.ticket().is_none()) else {
            return (None, None);
        };
        match head.presence {
            Presence::Found if head.score > now.wall() => (None, Some(head.score.before(1))),
            Presence::Found => (Some(self.rules.grace), None),
            _ => (Some(head.deadline), None),
        }
    }
}
