//! The clocks that the rules go by, and one reading of them.

/// Milliseconds: a duration. Instants of the three clocks are types, so they are mixed neither with durations nor with
/// each other.
pub type Millis = u64;

/// An instant of the wall clock, in milliseconds since the Unix epoch, as the keys have it: leases end by it, and
/// waiters' scores are compared with it. It can step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(u64);

impl Wall {
    pub const fn of(millis: u64) -> Self {
        Self(millis)
    }

    pub const fn millis(self) -> u64 {
        self.0
    }

    pub fn after(self, duration: Millis) -> Self {
        Self(self.0.saturating_add(duration))
    }

    pub fn before(self, duration: Millis) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    /// The time since an earlier instant; 0 since a later one.
    pub fn since(self, earlier: Self) -> Millis {
        self.0.saturating_sub(earlier.0)
    }
}

/// An instant of the steady clock, in milliseconds since some moment of this server run. Wall
/// clocks step; what is only counted here, and stored in no key, is counted by this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(u64);

impl Tick {
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant at which the clock shows these microseconds.
    pub const fn of(micros: u64) -> Self {
        Self(micros / 1000)
    }

    pub fn after(self, duration: Millis) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// The time since an earlier instant; 0 since a later one.
    pub fn since(self, earlier: Self) -> Millis {
        self.0.saturating_sub(earlier.0)
    }
}

/// An instant of the listening clock, in milliseconds: the steady clock less the time in which the server
/// did not listen to its clients, because it stood still or because writes were paused. Turns and the
/// deadlines of polling waiters are counted by it, for a waiter can only ask a server that listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heard(Tick);

impl Heard {
    /// `behind` milliseconds before this instant of the steady clock.
    pub const fn at(tick: Tick, behind: Millis) -> Self {
        Self(Tick(tick.0.saturating_sub(behind)))
    }

    pub fn after(self, duration: Millis) -> Self {
        Self(self.0.after(duration))
    }

    /// The time since an earlier instant; 0 since a later one.
    pub fn since(self, earlier: Self) -> Millis {
        self.0.since(earlier.0)
    }
}

/// The server's clocks, read once for a whole step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock: microseconds since the Unix epoch. Keys expire by it. It can step.
    pub micros: u64,
    /// The steady clock in microseconds.
    pub steady: u64,
    /// How far the listening clock is behind the steady clock: for how long the server has not listened.
    pub behind: Millis,
    /// Everything that clients sent before this instant has been read.
    pub heard: Heard,
}

impl Now {
    pub fn wall(self) -> Wall {
        Wall(self.micros / 1000)
    }

    /// `duration` from now, by the wall clock.
    pub fn after(self, duration: Millis) -> Wall {
        self.wall().after(duration)
    }

    pub fn tick(self) -> Tick {
        Tick::of(self.steady)
    }

    pub fn tick_after(self, duration: Millis) -> Tick {
        self.tick().after(duration)
    }

    pub fn listening(self) -> Heard {
        Heard::at(self.tick(), self.behind)
    }

    pub fn listening_after(self, duration: Millis) -> Heard {
        self.listening().after(duration)
    }

    pub fn left_until(self, instant: Heard) -> Millis {
        instant.since(self.listening())
    }

    /// Whether an instant of the listening clock is over, and all that was sent before it has been read.
    pub fn is_over(self, instant: Heard) -> bool {
        instant <= self.heard
    }

    /// When an instant of the listening clock is by the steady clock, if the server listens until then.
    pub fn tick_at(self, instant: Heard) -> Tick {
        instant.after(self.behind).0
    }
}

#[cfg(test)]
impl Now {
    /// An instant at which both clocks show these milliseconds.
    pub fn from_millis(millis: Millis) -> Self {
        Self {
            micros: millis.saturating_mul(1000),
            steady: millis.saturating_mul(1000),
            behind: 0,
            heard: Heard(Tick(millis)),
        }
    }

    /// The time after `time` more milliseconds, with the server listening all the time.
    pub fn later(self, time: Millis) -> Self {
        let later = Self {
            behind: self.behind,
            ..self.after_stall(time)
        };
        Self {
            heard: later.listening(),
            ..later
        }
    }

    /// The time after `time` more milliseconds, during which the server stood still.
    pub fn after_stall(self, time: Millis) -> Self {
        Self {
            micros: self.micros.saturating_add(time.saturating_mul(1000)),
            steady: self.steady.saturating_add(time.saturating_mul(1000)),
            behind: self.behind.saturating_add(time),
            heard: self.heard,
        }
    }
}
