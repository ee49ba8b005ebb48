//! One step on a lock: its state, the rules as configured, and the time, which is read once.
//!
//! What a step can do is in the files beside this one, each with a part of the methods: [`super::acquire`],
//! [`super::release`], [`super::leave`] and [`super::scripts`] have what a client asks for, [`super::turn`] what
//! follows when the lock is available, [`super::sharing`], [`super::session`] and [`super::score`] what these rest on.

use super::clock::Now;
use super::parts::{Refusal, Rules};
use super::state::State;

/// A step on the lock with this state.
pub struct Step<'a, S> {
    pub state: &'a mut S,
    pub rules: &'a Rules,
    pub now: Now,
}

impl<'a, S> Step<'a, S> {
    pub fn new(state: &'a mut S, rules: &'a Rules, now: Now) -> Self {
        Self { state, rules, now }
    }
}

impl<S: State> Step<'_, S> {
    /// Looks at a lock that is due, or whose keys were touched from outside the module. Does what follows from
    /// the time and from the keys as they are now.
    pub fn look(&mut self) {
        self.drop_ended(None);
        self.end_lost_session();
        self.renew_due_sessions();
        self.settle(None);
    }

    /// Refuses a step that would change application data. The key is not empty.
    pub(super) fn require_lock(&mut self) -> Result<(), Refusal> {
        let is_lock = self.state.is_lock();
        is_lock.then_some(()).ok_or(Refusal::NotALock)
    }

    /// The owner does not hold the lock: it is free, another owner's, or no lock at all.
    pub(super) fn not_held(&mut self) -> Refusal {
        if self.state.is_held() && !self.state.is_lock() {
            Refusal::NotALock
        } else {
            Refusal::NotHeld
        }
    }
}
