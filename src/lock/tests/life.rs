//! Until when an owner in the queue counts as alive.

use super::oracle::{Queued, Scene};
use crate::lock::{Heard, Millis, Now, Ticket, Wall};

/// Why an owner in the queue counts as alive, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// As long as its connection is open.
    Blocked(Ticket),
    /// Its time was up, or its connection has closed: it is not, but still in the queue.
    Left,
    /// It asked with ENQUEUE.
    Polling(Heard),
    /// It asked by a script of Redisson's, which was seen.
    Asked(Heard),
    /// It was found in the keys with this deadline, and has not been heard. Or it was woken, and has until then.
    Found(Wall, Option<Heard>),
}

/// An instant of the clock that stands still while the server does not listen.
pub fn heard_after(now: Now, time: Millis) -> Heard {
    Heard::at(now.tick(), now.behind).after(time)
}

/// Whether an instant of that clock is over, and all that was sent before it has been read.
pub fn is_over(instant: Heard, now: Now) -> bool {
    instant <= now.heard
}

impl Life {
    /// Whether an owner in the queue is alive, as clients understand the promise; `clock` as in [`Scene`].
    pub fn lasts(self, now: Now, grace: Heard, clock: Wall) -> bool {
        match self {
            Self::Blocked(_) => true,
            Self::Left => false,
            Self::Polling(until) | Self::Asked(until) | Self::Found(_, Some(until)) => {
                !is_over(until, now)
            }
            Self::Found(deadline, None) => deadline > clock || !is_over(grace, now),
        }
    }
}

impl Queued {
    /// How long its turn is: as configured, or what its own patience leaves if that is shorter; of a script's waiter a
    /// fifth at least, within what is left of its life.
    pub fn turn(&self, scene: &Scene) -> Millis {
        let now = scene.now;
        let own = match self.life {
            Life::Polling(_) => self.patience,
            Life::Asked(until) => {
                let left = until.since(heard_after(now, 0));
                left.min(self.patience.max(scene.rules.turn / 5))
            }
            Life::Found(..) if !is_over(scene.rules.grace, now) => scene.rules.turn,
            Life::Found(score, _) => score.since(now.wall()),
            _ => 0,
        };
        scene.rules.turn.min(own).max(1)
    }
}
