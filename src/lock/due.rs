//! When a lock has to be looked at again, if ever.

use super::clock::{Heard, Millis, Tick, Wall};
use super::parts::Presence;
use super::state::State;
use super::step::Step;

/// Milliseconds after which a lease is tried to be renewed again that may not be renewed now.
const RETRY: Millis = 100;

/// When a lock has to be looked at again if no command touches it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// By the wall clock, once this millisecond is over: a lease ends or is to be renewed, or the score of the head
    /// passes.
    pub wall: Option<Wall>,
    /// By the steady clock: a turn ends, or the waiters behind a silent head are to be woken.
    pub tick: Option<Tick>,
}

impl<S: State> Step<'_, S> {
    /// When a lock with waiters, a session or shared holders has to be looked at again. Never if it is held without a
    /// lease and all waiters were found in the keys, and their scores are over.
    pub fn next_due(&mut self) -> Due {
        let turn = self.state.turn();
        if turn.is_none() && self.state.waiting() > 0 && !self.state.is_held() {
            // The lock became free without a command, as when a lease ends, or a long row of dead waiters was ahead:
            // the head is still to be served.
            return Due {
                wall: None,
                tick: Some(self.now.tick()),
            };
        }
        let renewal = self.next_renewal().map(|(at, _)| at.before(1));
        let is_overdue = renewal.is_some_and(|at| at < self.now.wall());
        let retry = is_overdue && !self.state.may_renew();
        let walls = [
            self.first_lease_end(),
            renewal.filter(|_| !retry),
            self.head_score_ends(),
        ];
        let turn_ends = turn.as_ref().map(|turn| turn.until);
        let wakes_next = turn.and_then(|turn| turn.wakes_next);
        let ticks = [turn_ends, wakes_next, self.unfit_head_ends()];
        let ticks = ticks.into_iter().flatten();
        let retry = retry.then(|| self.now.tick_after(RETRY));
        Due {
            wall: walls.into_iter().flatten().min(),
            tick: ticks.map(|at| self.now.tick_at(at)).chain(retry).min(),
        }
    }

    /// When a head that the holders do not tolerate may count as dead: then the waiters behind it may join the
    /// holders. One that was found in the keys does not before its score is over, which is looked at as well.
    fn unfit_head_ends(&mut self) -> Option<Heard> {
        self.state.shared()?;
        let (_, head) = self.state.waiter_at(0)?;
        match head.presence {
            Presence::Blocked(_) => None,
            Presence::Found if head.score > self.now.wall() => None,
            Presence::Found => Some(self.rules.grace),
            _ => Some(head.deadline),
        }
    }
}
