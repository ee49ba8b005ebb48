//! The time limit for the module's work in one iteration of the event loop, so that a backlog does not delay
//! other clients.
//!
//! What is left over stays noted, or due, and the next iteration comes at once. Each iteration gets at least
//! some of the work done.

use crate::server::clock;

/// Microseconds for all the work of one hook of an iteration. One step more may follow, which has its own
/// bound, and the server has some work of its own with each client that is let go.
const LONGEST: u64 = 3000;

/// A stretch of work.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    ends: u64,
}

impl Slice {
    /// It begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            ends: clock::steady_micros().saturating_add(LONGEST),
        }
    }

    /// Whether the rest is to be left to the next iteration.
    #[must_use]
    pub fn is_over(self) -> bool {
        clock::steady_micros() >= self.ends
    }
}
