//! The scripts by which a waiter leaves the queue.

use crate::server::{Str, string};

use super::keys::Waiters;
use super::run::{Call, LeftToLua, Reply};

/// One such script. Keys: queue, scores. Arguments: owner, and the wait to subtract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It takes the owner out.
    Only,
    /// If the owner is the head, everybody's score is lessened first.
    SubtractIfHead,
    /// The scores of those behind the owner are lessened first.
    SubtractBehind,
}

impl Leave {
    pub fn run(self, call: &Call<'_>) -> Result<Reply, LeftToLua> {
        let mut waiters = Waiters::open(call, 0, 1)?;
        let owner = string(call.argument(0)?);
        let is_owner = |waiter: &Str| waiter.as_slice() == owner.as_slice();
        match self {
            Self::Only => (),
            Self::SubtractIfHead => {
                let wait = call.number(1)?;
                if waiters.head().as_ref().is_some_and(is_owner) {
                    waiters.subtract_from_all(wait);
                }
            }
            Self::SubtractBehind => {
                let wait = call.number(1)?;
                let all = waiters.all();
                let place = all.iter().position(is_owner);
                let behind = place.and_then(|place| all.get(place + 1..));
                waiters.subtract_from(behind.unwrap_or_default(), wait);
            }
        }
        waiters.remove_score(&owner);
        waiters.remove_entries(&owner);
        Ok(Reply::Nil)
    }
}
