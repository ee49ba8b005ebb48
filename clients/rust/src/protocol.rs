//! The protocol: what to send, and how long to wait. Sends nothing itself, and has no clock: the time is an argument.

use std::time::{Duration, Instant};

use redis::Value;

use crate::options::jitter;
use crate::{Error, Kind, Options, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long, and how often, a passing failure is tried again.
pub struct Tries {
    longest: Duration,
    pause: Duration,
    /// Since when all tries have failed, and the first failure.
    since: Option<(Instant, Error)>,
}

impl Tries {
    pub fn new(longest: Duration) -> Self {
        Self {
            longest,
            pause: FIRST_PAUSE,
            since: None,
        }
    }

    /// The pause before the next try, or the first failure: it has failed for too long.
    pub fn failed(&mut self, now: Instant, failure: Error) -> Result<Duration> {
        let (since, first) = self.since.get_or_insert((now, failure));
        let left = self
            .longest
            .saturating_sub(now.saturating_duration_since(*since));
        if left.is_zero() {
            return Err(first.clone());
        }
        let pause = self.pause.min(left);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(pause)
    }
}

/// The server's answer, and whether enough replicas have confirmed it.
#[derive(Debug)]
pub struct Reply(pub Value, pub bool);

/// What to do next.
#[derive(Debug)]
pub enum Step {
    Ask,
    /// Too few replicas have the grant with this token, or a new master does not know that it was released.
    GiveBack(i64),
    /// Have the owner's channel listened to; then, or if it was before: until a message, or for so long.
    Listen(Duration),
    Pause(Duration),
    /// The lock is held, with this token and a lease that counts from then.
    Granted(i64, Instant),
    Failed(Error),
}

/// An acquisition, from the first ask to the grant.
pub struct Asking {
    lease: Duration,
    /// When the wait is over.
    end: Option<Instant>,
    tries: Tries,
    token: i64,
    /// The last token that the owner has released.
    pub released: i64,
    is_unconfirmed: bool,
    /// The owner has a place in the queue, or the lock.
    pub is_there: bool,
}

impl Asking {
    pub fn new(options: &Options, now: Instant) -> Self {
        let once = |wait: Duration| wait.is_zero().then_some(options.command_timeout);
        let wait = options.wait.map(|wait| once(wait).unwrap_or(wait));
        Self {
            lease: options.lease,
            end: wait.map(|wait| later(now, wait)),
            tries: Tries::new(options.retry_timeout),
            token: 0,
            released: 0,
            is_unconfirmed: false,
            is_there: false,
        }
    }

    /// This time, or what is left of the wait.
    pub fn at_most(&self, longest: Duration, now: Instant) -> Duration {
        let left = self.end.map(|end| end.saturating_duration_since(now));
        longest.min(left.unwrap_or(Duration::MAX))
    }

    /// Time to ask, for the first time or again.
    pub fn ask(&mut self, now: Instant) -> Step {
        if self.end.is_some_and(|end| now >= end) {
            return self.too_late();
        }
        Step::Ask
    }

    fn too_late(&self) -> Step {
        let mut failure = Error::new(Kind::NotInTime, "not acquired in time");
        if self.is_unconfirmed {
            failure = Error::unconfirmed();
        }
        if let Some((_, first)) = &self.tries.since {
            let text = format!("{failure}: {first}");
            failure = Error::new(failure.kind, text).because(first.clone());
        }
        Step::Failed(failure)
    }

    /// What was asked at a time has been answered, or has failed.
    pub fn answered(&mut self, sent: Instant, now: Instant, outcome: Result<Reply>) -> Step {
        let Reply(value, is_confirmed) = match outcome {
            Ok(reply) => reply,
            Err(failure) => return self.failed(now, failure),
        };
        self.tries = Tries::new(self.tries.longest);
        match value {
            Value::Int(token) => {
                self.is_there = true;
                let late = now.saturating_duration_since(sent);
                let is_new = token != std::mem::replace(&mut self.token, token);
                if token <= self.released {
                    Step::GiveBack(token)
                } else if !is_confirmed {
                    self.is_unconfirmed = true;
                    Step::GiveBack(token)
                } else if late >= self.lease || (is_new && late >= self.lease / 3) {
                    // Asking again (ONCE) renews it, or finds that it is lost. Once, since it may be as slow again.
                    self.ask(now)
                } else {
                    Step::Granted(token, sent)
                }
            }
            Value::Array(place) => {
                self.is_there = true;
                let retry_after = match place.get(1) {
                    Some(Value::Int(ms)) => ms.unsigned_abs(),
                    _ => 1000,
                };
                let pause = Duration::from_millis(retry_after);
                Step::Listen(self.at_most(pause + jitter(pause / 10), now))
            }
            _ => self.too_late(),
        }
    }

    pub fn given_back(&mut self, now: Instant, outcome: Result<Reply>) -> Step {
        match outcome {
            Err(failure) if !failure.is("NOTHELD") => self.failed(now, failure),
            _ if self.token <= self.released => {
                self.released = 0; // A server that was told once knows.
                self.ask(now)
            }
            _ => {
                self.released = self.token;
                Step::Pause(self.at_most(FIRST_PAUSE, now))
            }
        }
    }

    /// Something has failed: an ask, or listening.
    pub fn failed(&mut self, now: Instant, failure: Error) -> Step {
        if failure.kind != Kind::Unavailable {
            return Step::Failed(failure);
        }
        match self.tries.failed(now, failure) {
            Ok(pause) => Step::Pause(self.at_most(pause, now)),
            Err(first) => Step::Failed(first),
        }
    }
}

/// A lock that is held: when to renew it, and when it is lost.
#[derive(Debug)]
pub struct Keeping {
    pub lease: Duration,
    /// By this process's clock, counted from before the ask or the renewal.
    pub end: Instant,
    /// When to renew next; `None`: never.
    due: Option<Instant>,
}

impl Keeping {
    pub fn new(lease: Duration, is_renewed: bool, since: Instant) -> Self {
        let due = is_renewed.then(|| later(since, lease / 3));
        let end = later(since, lease);
        Self { lease, end, due }
    }

    /// When to renew it, or else to look again; `None`: the lease is over.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let due = self.due.unwrap_or(self.end).min(self.end);
        (now < self.end).then_some(due)
    }

    /// A renewal that was sent then has succeeded, confirmed by replicas.
    pub fn renewed(&mut self, sent: Instant, lease: Duration) {
        *self = Self::new(lease, self.due.is_some(), sent);
    }

    /// It has failed, and is tried again.
    pub fn failed(&mut self, now: Instant) {
        let pause = (self.lease / 10).max(FIRST_PAUSE);
        self.due = self.due.map(|_| later(now, pause));
    }
}

/// Longer times are cut to one that no process lives to see.
pub fn later(from: Instant, duration: Duration) -> Instant {
    let century = Duration::from_hours(100 * 365 * 24);
    from + duration.min(century)
}
