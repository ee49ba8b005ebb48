//! Until when an owner in the queue counts as alive.

use crate::lock::{Millis, Now, Tick, Ticket};

/// Why an owner in the queue counts as alive, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// As long as its connection is open.
    Blocked(Ticket),
    /// Its time was up, or its connection has closed: it is not, but still in the queue.
    Left,
    /// It asked with ENQUEUE.
    Polling(Tick),
    /// It asked by a script of Redisson's, which was seen.
    Asked(Tick),
    /// Nobody here has heard of it; it was found in the keys with this deadline. Or it was woken,
    /// and has until then.
    Found(Millis, Option<Tick>),
}

impl Life {
    /// Whether an owner in the queue is alive, as clients understand the promise.
    pub fn lasts(self, now: Now, grace: Tick) -> bool {
        match self {
            Self::Blocked(_) => true,
            Self::Left => false,
            Self::Polling(until) | Self::Asked(until) | Self::Found(_, Some(until)) => {
                until > now.tick()
            }
            Self::Found(deadline, None) => deadline > now.millis() || grace > now.tick(),
        }
    }

    /// Whether scripts must not cost it its place.
    pub fn is_shielded(self, now: Now, intercepts: bool) -> bool {
        match self {
            Self::Blocked(_) => true,
            Self::Polling(until) => until > now.tick(),
            Self::Asked(until) => intercepts && until > now.tick(),
            Self::Left | Self::Found(..) => false,
        }
    }
}
