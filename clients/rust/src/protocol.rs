//! The protocol: what to send, and how long to wait. Sends nothing itself, and has no clock: the time is an argument.

use std::time::{Duration, Instant};

use redis::Value;

use crate::error::{Failure, Outcome};
use crate::options::{Options, jitter};
use crate::{Cause, Kind};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long, and how often, a passing failure is tried again.
pub(crate) struct Tries {
    longest: Duration,
    pause: Duration,
    /// Since when all tries have failed, and the first failure.
    since: Option<(Instant, Failure)>,
}

impl Tries {
    pub(crate) fn new(longest: Duration) -> Self {
        let (pause, since) = (FIRST_PAUSE, None);
        Self {
            longest,
            pause,
            since,
        }
    }

    /// The pause before the next try; `None`: it has failed for too long.
    pub(crate) fn failed(&mut self, now: Instant, failure: &Failure) -> Option<Duration> {
        let (since, _) = self.since.get_or_insert_with(|| (now, failure.clone()));
        let left = self
            .longest
            .saturating_sub(now.saturating_duration_since(*since));
        let pause = self.pause.min(left);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        (!left.is_zero()).then_some(pause)
    }

    fn first(&self) -> Option<Failure> {
        self.since.as_ref().map(|(_, failure)| failure.clone())
    }
}

/// The server's answer, and whether enough replicas have confirmed it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) is_confirmed: Outcome<bool>,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    Send(Message),
    /// Have the owner's channel listened to; then, or if it was before: until a message, or for so long.
    Listen(Duration),
    Pause(Duration),
    /// The lock is held, with this token and a lease that counts from then.
    Granted(i64, Instant),
    Failed(Kind, Option<Failure>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    Ask,
    /// Too few replicas have the grant with this token.
    GiveBack(i64),
}

/// An acquisition, from the first ask to the grant.
pub(crate) struct Asking {
    lease: Duration,
    /// When the wait is over.
    end: Option<Instant>,
    tries: Tries,
    retry_timeout: Duration,
    /// What was sent and not answered yet.
    sent: Option<Message>,
    token: i64,
    is_unconfirmed: bool,
    /// The owner may have a place in the queue, or the lock.
    is_there: bool,
    /// An ask was never answered: it may still reach the server.
    has_lost_ask: bool,
}

impl Asking {
    pub(crate) fn new(options: &Options, now: Instant) -> Self {
        let wait = options.wait.map(|wait| {
            if wait.is_zero() {
                options.command_timeout
            } else {
                wait
            }
        });
        Self {
            lease: options.lease,
            end: wait.map(|wait| later(now, wait)),
            tries: Tries::new(options.retry_timeout),
            retry_timeout: options.retry_timeout,
            sent: None,
            token: 0,
            is_unconfirmed: false,
            is_there: false,
            has_lost_ask: false,
        }
    }

    /// What is left of the wait; `None`: any time.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(now))
    }

    /// The caller does not want it any more: whether the owner must leave.
    pub(crate) fn must_leave(&self) -> bool {
        self.is_there || !self.is_clean()
    }

    /// Whether all that was sent has been answered, so that the owner's name can be used again.
    pub(crate) fn is_clean(&self) -> bool {
        self.sent.is_none() && !self.has_lost_ask
    }

    /// Time to ask, for the first time or again.
    pub(crate) fn ask(&mut self, now: Instant) -> Step {
        if self.end.is_some_and(|end| now >= end) {
            return self.too_late();
        }
        self.send(Message::Ask)
    }

    fn send(&mut self, message: Message) -> Step {
        self.sent = Some(message);
        Step::Send(message)
    }

    fn too_late(&self) -> Step {
        let kind = if self.is_unconfirmed {
            Kind::NotReplicated
        } else {
            Kind::NotInTime
        };
        Step::Failed(kind, self.tries.first())
    }

    /// What was sent at a time has been answered, or has failed.
    pub(crate) fn answered(
        &mut self,
        sent: Instant,
        now: Instant,
        outcome: Outcome<Reply>,
    ) -> Step {
        let message = self.sent.take();
        let reply = match outcome {
            Ok(reply) => reply,
            Err(failure) if message != Some(Message::Ask) && failure.is("NOTHELD") => {
                return self.ask(now);
            }
            Err(failure) => {
                self.has_lost_ask |= matches!(failure, Failure::Broken(_));
                return self.failed(now, failure);
            }
        };
        self.tries = Tries::new(self.retry_timeout);
        match (message, &reply.value) {
            (Some(Message::GiveBack(_)), _) => self.pause(now, FIRST_PAUSE),
            (_, Value::Int(token)) => {
                let is_new = *token != std::mem::replace(&mut self.token, *token);
                self.granted(sent, now, reply.is_confirmed, is_new)
            }
            (_, Value::Array(place)) => {
                self.is_there = true;
                let retry_after = match place.get(1) {
                    Some(Value::Int(ms)) => ms.unsigned_abs(),
                    _ => 1000,
                };
                let pause = Duration::from_millis(retry_after);
                Step::Listen(self.at_most_left(now, pause + jitter(pause / 10)))
            }
            _ => self.too_late(),
        }
    }

    fn granted(
        &mut self,
        sent: Instant,
        now: Instant,
        is_confirmed: Outcome<bool>,
        is_new: bool,
    ) -> Step {
        self.is_there = true;
        let late = now.saturating_duration_since(sent);
        match is_confirmed {
            Err(failure) => self.failed(now, failure),
            Ok(false) => {
                self.is_unconfirmed = true;
                self.send(Message::GiveBack(self.token))
            }
            // Asking again (ONCE) renews it, or finds that it is lost. Once, since it may be as slow again.
            Ok(true) if late >= self.lease || (late >= self.lease / 3 && is_new) => self.ask(now),
            Ok(true) => Step::Granted(self.token, sent),
        }
    }

    /// Something has failed: an ask, or listening.
    pub(crate) fn failed(&mut self, now: Instant, failure: Failure) -> Step {
        if !failure.is_passing() {
            return Step::Failed(Kind::Refused, Some(failure));
        }
        match self.tries.failed(now, &failure) {
            Some(pause) => self.pause(now, pause),
            None => Step::Failed(Kind::Unavailable, self.tries.first()),
        }
    }

    fn pause(&self, now: Instant, pause: Duration) -> Step {
        Step::Pause(self.at_most_left(now, pause))
    }

    fn at_most_left(&self, now: Instant, pause: Duration) -> Duration {
        self.left(now).map_or(pause, |left| pause.min(left))
    }
}

/// A lock that is held: when to renew it, and when it is lost.
#[derive(Debug)]
pub(crate) struct Keeping {
    pub(crate) lease: Duration,
    /// By this process's clock, counted from before the ask or the renewal.
    pub(crate) end: Instant,
    /// When to renew next; `None`: never.
    due: Option<Instant>,
}

pub(crate) enum Due {
    Later(Instant),
    Renewal,
    Lost(Cause),
}

impl Keeping {
    pub(crate) fn new(lease: Duration, is_renewed: bool, since: Instant) -> Self {
        let due = is_renewed.then(|| later(since, lease / 3));
        let end = later(since, lease);
        Self { lease, end, due }
    }

    pub(crate) fn next(&self, now: Instant) -> Due {
        match self.due {
            _ if now >= self.end => Due::Lost(Cause::Lease),
            Some(due) if now >= due => Due::Renewal,
            Some(due) => Due::Later(due.min(self.end)),
            None => Due::Later(self.end),
        }
    }

    /// A renewal that was sent then has succeeded, confirmed by replicas.
    pub(crate) fn renewed(&mut self, sent: Instant, lease: Duration) {
        *self = Self::new(lease, self.due.is_some(), sent);
    }

    /// It has failed, and is tried again.
    pub(crate) fn failed(&mut self, now: Instant) {
        let pause = (self.lease / 10).max(FIRST_PAUSE);
        self.due = self.due.map(|_| later(now, pause));
    }
}

/// Longer times are cut to one that no process lives to see.
pub(crate) fn later(from: Instant, duration: Duration) -> Instant {
    let century = Duration::from_hours(100 * 365 * 24);
    from + duration.min(century)
}

#[cfg(test)]
mod tests;
