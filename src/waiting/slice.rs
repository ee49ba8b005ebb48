//! The time limit for the module's work in one iteration of the event loop, so that a backlog does not delay
//! other clients.
//!
//! Work that is left over stays noted, or due, and the next iteration begins at once. Each iteration does at
//! least some of the work.

use crate::server::clock;

/// Microseconds for all the work at the beginning or end of an iteration. One more step may follow, which has its
/// own bound, and the server has some work of its own with each client that is unblocked.
const LONGEST: u64 = 2000;

/// A stretch of work.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    ends: u64,
}

impl Slice {
    /// It begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self::of(LONGEST)
    }

    /// It begins now. What it finds is still to be written into a reply, which takes about as long.
    #[must_use]
    pub fn begin_search() -> Self {
        Self::of(LONGEST / 2)
    }

    fn of(micros: u64) -> Self {
        Self {
            ends: clock::steady_micros().saturating_add(micros),
        }
    }

    /// Whether the rest is to be left to the next iteration.
    #[must_use]
    pub fn is_over(self) -> bool {
        clock::steady_micros() >= self.ends
    }
}
