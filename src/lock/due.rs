//! When a lock has to be looked at again, and whether it has to be at all.

use super::clock::{Millis, Tick};
use super::state::State;
use super::step::Step;

/// When a lock has to be looked at again if no command touches it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// By the wall clock, once this millisecond is over: a lease has ended, or the score of a head that lives
    /// is over.
    pub wall: Option<Millis>,
    /// By the steady clock: a turn ends, those behind a silent head are to be woken, a session is to
    /// be renewed, or the deadline of a head that lives is over.
    pub tick: Option<Tick>,
}

impl<S: State> Step<'_, S> {
    /// When the lock has to be looked at again. Never if it has no waiters, no session and no shared holders,
    /// or if it is held without a lease and all waiters were found in the keys.
    pub fn next_due(&mut self) -> Due {
        let renew = self.next_renewal();
        if self.state.waiting() == 0 {
            let shared = self.state.shared();
            return Due {
                wall: shared.and_then(|shared| shared.first_end()),
                tick: renew,
            };
        }
        let turn = self.state.turn();
        if turn.is_none() && !self.state.is_held() {
            // It became free without a command, as when a lease ends, and the head has not been served yet.
            return Due {
                wall: None,
                tick: Some(self.now.tick()),
            };
        }
        let turn_ends = turn.as_ref().map(|turn| turn.until);
        let wakes_next = turn.and_then(|turn| turn.wakes_next);
        let (deadline, score) = self.shield_ends();
        Due {
            wall: [self.first_lease_end(), score].into_iter().flatten().min(),
            tick: [turn_ends, wakes_next, deadline]
                .into_iter()
                .flatten()
                .map(|instant| self.now.tick_at(instant))
                .chain(renew)
                .min(),
        }
    }

    /// When a session is to be renewed.
    fn next_renewal(&mut self) -> Option<Tick> {
        match self.state.shared() {
            Some(shared) => shared.first_renewal(),
            None => self
                .state
                .session()
                .as_ref()
                .map(|session| session.renew_at),
        }
    }

    /// Whether the queue can be left to Redisson's scripts, which run as Lua: none but theirs wait, and
    /// neither a turn nor a hold is looked after by these rules.
    pub fn leaves_to_scripts(&mut self) -> bool {
        let waiting = self.state.waiting();
        !self.rules.intercepts
            && waiting > 0
            && waiting == self.state.scripted()
            && self.state.turn().is_none()
            && self.state.session().is_none()
            && self.state.shared().is_none()
    }
}
