//! Until when an owner in the queue counts as alive.

use super::oracle::Scene;
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
    /// It was found in the keys with this deadline, and has not been heard. Or it was woken, and has until then.
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

    /// How long its turn is: as configured, or its own patience if that is shorter.
    pub fn turn(self, scene: &Scene) -> Millis {
        let now = scene.now;
        let own = match self {
            Self::Polling(_) => scene.patience,
            Self::Asked(until) if until > now.tick() => scene.wait.min(until - now.tick()),
            Self::Found(..) if scene.grace > now.tick() => scene.turn,
            Self::Found(score, _) => score.saturating_sub(now.millis()),
            _ => 0,
        };
        scene.turn.min(own).max(1)
    }

    /// Whether scripts that run as Lua must not cost it its place.
    pub fn is_shielded(self, now: Now) -> bool {
        match self {
            Self::Blocked(_) => true,
            Self::Polling(until) => until > now.tick(),
            Self::Asked(_) | Self::Left | Self::Found(..) => false,
        }
    }
}
