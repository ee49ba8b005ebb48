//! Requests put together to attempts: a client that waits may have to ask more than once.
//!
//! An attempt says since when its place in the queue has certainly been kept. A client that is woken late or is refused
//! is back in the queue only when the server has heard of it.

use std::collections::BTreeMap;

use super::places::{self, Absence};
use crate::history::{Answer, Call, History, Micros, Request, Way};

/// What a client did to get a lock once.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub client: usize,
    pub way: Way,
    /// The shortest that it asked for.
    pub lease: Micros,
    /// When it first asked, and when it asked for the last time before it was granted.
    pub began: Micros,
    pub asked: Micros,
    /// Since then its place in the queue, if it has one, is certainly kept.
    pub placed_since: Micros,
    /// The last reply.
    pub ended: Micros,
    pub granted: bool,
    /// The token, if it was granted one.
    pub token: Option<i64>,
    /// It waits in a way in which it cannot be overtaken.
    pub protected: bool,
}

/// An attempt that is followed from request to request.
struct Followed {
    attempt: Attempt,
    /// When the server has certainly known that the client waits, for the last time.
    known: Micros,
    /// Since its connection was lost.
    absent: Option<Absence>,
    /// Since it was refused.
    refused: Option<Micros>,
}

/// The attempts at one lock, by client.
pub fn of_lock(history: &History, lock: usize) -> BTreeMap<usize, Vec<Attempt>> {
    let mut followed: BTreeMap<(usize, u64), Followed> = BTreeMap::new();
    for call in history.calls.iter().filter(|call| call.lock == lock) {
        let Request::Acquire { way, lease, .. } = call.request else {
            continue;
        };
        let followed = followed
            .entry((call.client, call.attempt))
            .or_insert_with(|| Followed::begin(call, way, lease));
        // What comes after it is a second hold.
        if !followed.attempt.granted {
            followed.step(history, call, lease);
        }
    }
    let mut by_client: BTreeMap<usize, Vec<Attempt>> = BTreeMap::new();
    for Followed { mut attempt, .. } in followed.into_values() {
        let out = places::taken_out(history, lock, &attempt);
        attempt.placed_since = attempt.placed_since.max(out);
        by_client.entry(attempt.client).or_default().push(attempt);
    }
    by_client
}

impl Followed {
    fn begin(call: &Call, way: Way, lease: Micros) -> Self {
        let attempt = Attempt {
            client: call.client,
            way,
            lease,
            began: call.invoked,
            asked: call.invoked,
            placed_since: call.invoked,
            ended: call.answered,
            granted: false,
            token: None,
            protected: matches!(way, Way::Blocked | Way::Polling),
        };
        Self {
            attempt,
            known: call.invoked,
            absent: None,
            refused: None,
        }
    }

    fn step(&mut self, history: &History, call: &Call, lease: Micros) {
        let attempt = &mut self.attempt;
        attempt.lease = attempt.lease.min(lease);
        (attempt.asked, attempt.ended) = (call.invoked, call.answered);
        if let Answer::Refused(error) = &call.answer {
            // No server knows more about the client than before.
            self.refused.get_or_insert(call.answered);
            if error.starts_with("UNBLOCKED") || error.starts_with("TAKENOVER") {
                self.absent.get_or_insert_with(|| Absence::of(call));
            }
            return;
        }
        let refused = self.refused.take();
        // Its turn may have been then. Of that only the first half counts.
        let is_late = refused.is_some_and(|since| call.invoked > since + history.turn / 2);
        if is_late || !places::is_kept(history, attempt, self.known, self.absent, call) {
            attempt.placed_since = places::certainly_heard(call);
        }
        match &call.answer {
            Answer::Lost => self.absent = Some(Absence::of(call)),
            Answer::Granted(token) => (attempt.granted, attempt.token) = (true, *token),
            _ => (self.known, self.absent) = (call.answered, None),
        }
    }
}
