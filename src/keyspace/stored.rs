//! One lock in its keys, as the rules see it.

use std::ffi::CStr;

use redis_module::NotifyEvent;

use crate::lock::line::Line;
use crate::lock::{
    Deadline, Event, Holds, Millis, Now, Owner, Presence, Refusal, Rules, Session, State, Turn,
    Waiter,
};
use crate::server::{Access, Ctx, Key, Kind, Str, string};

use super::{Names, repair, write};

/// What this server knows of a lock beyond its keys: who is blocked here, everyone's position,
/// whose turn it is. Lost in a restart, and made again from the keys.
#[derive(Debug, Default)]
pub struct Known {
    /// The queue's order.
    pub line: Line,
    /// The running turn.
    pub turn: Option<Turn>,
    /// The connections that the lock is bound to.
    pub session: Option<Session>,
}

impl Known {
    /// Whether there is nothing that the keys do not say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.line.is_empty() && self.session.is_none()
    }
}

/// A lock of which some key holds something else.
#[derive(Debug)]
pub struct Unusable {
    /// The lock's name.
    pub lock: Str,
    /// What was known of it.
    pub known: Known,
    /// When the first of its keys expires.
    pub expires: Option<Millis>,
}

impl Unusable {
    fn new(ctx: &Ctx, names: Names, known: Known) -> Box<Self> {
        let keys = [&names.lock, &names.queue, &names.deadlines];
        let expiries = keys.map(|name| ctx.open(name, Access::Read).expires_at());
        Box::new(Self {
            lock: names.lock,
            known,
            expires: expiries.into_iter().flatten().min(),
        })
    }
}

/// A lock's keys, open for one step.
#[derive(Debug)]
pub struct Stored<'c> {
    pub(super) ctx: &'c Ctx,
    /// The names of the lock's keys.
    pub names: Names,
    /// What is known beyond the keys.
    pub known: Known,
    /// The greatest token seen since the server started.
    pub greatest: i64,
    /// What has happened so far.
    pub events: Vec<Event>,
    pub(super) rules: Rules,
    pub(super) now: Now,
    /// Whether the queue was walked and mended in this step.
    pub(super) mended: bool,
    lock: Key<'c>,
    token: Option<Result<Option<i64>, Refusal>>,
}

impl<'c> Stored<'c> {
    /// Opens the keys. What others did to the queue since is mended first.
    ///
    /// # Errors
    /// [`Unusable`] if the lock, queue or deadline key holds something else; nothing has been
    /// written then.
    pub fn open(
        ctx: &'c Ctx,
        names: Names,
        known: Known,
        greatest: i64,
        rules: &Rules,
        now: Now,
    ) -> Result<Self, Box<Unusable>> {
        let lock = ctx.open(&names.lock, Access::Write);
        if !matches!(lock.kind(), Kind::Empty | Kind::Hash) {
            drop(lock);
            return Err(Unusable::new(ctx, names, known));
        }
        let mut stored = Self {
            ctx,
            names,
            known,
            greatest,
            events: Vec::new(),
            rules: *rules,
            now,
            mended: false,
            lock,
            token: None,
        };
        match stored.queue_is_as_known() {
            Some(true) => (),
            Some(false) => repair::repair(&mut stored),
            None => return Err(Unusable::new(ctx, stored.names, stored.known)),
        }
        Ok(stored)
    }

    /// Whether the queue and the deadlines look as this server left them. It compares lengths and
    /// both ends: foreign scripts drop from the head and add at the tail, and a change that this
    /// misses shows as soon as it reaches the head. `None`: a key holds something else.
    fn queue_is_as_known(&self) -> Option<bool> {
        let queue = self.ctx.open(&self.names.queue, Access::Write);
        let deadlines = self.ctx.open(&self.names.deadlines, Access::Write);
        let types_fit = matches!(queue.kind(), Kind::Empty | Kind::List)
            && matches!(deadlines.kind(), Kind::Empty | Kind::SortedSet);
        if !types_fit {
            return None;
        }
        let length = self.known.line.len();
        if queue.len() != length || deadlines.len() != length {
            return Some(false);
        }
        let Some(last) = length.checked_sub(1) else {
            return Some(true);
        };
        // A handle of its own for each end: on one, the server would walk from end to end.
        let end = self.ctx.open(&self.names.queue, Access::Read);
        let same = |found: Option<Str>, index| {
            let expected = self.known.line.nth(index);
            found.is_some_and(|found| expected.is_some_and(|owner| **owner == *found.as_slice()))
        };
        let head_has_deadline = || {
            let head = self.known.line.nth(0);
            head.is_some_and(|head| deadlines.score(&string(head)).is_some())
        };
        let ends = same(queue.list_get(0), 0) && same(end.list_get(last), last);
        Some(ends && head_has_deadline())
    }

    /// Closes the keys and leaves what is to be kept: the names, what is known beyond the keys,
    /// what has happened, and the greatest token.
    #[must_use]
    pub fn close(self) -> (Names, Known, Vec<Event>, i64) {
        (self.names, self.known, self.events, self.greatest)
    }

    /// Somebody else has touched queue or deadlines: they are mended in their whole length, not
    /// only where their ends show it. They last as long as anyone waits: an expiry that somebody
    /// has put on them (Redisson's `expire()` does) would throw the waiters away.
    pub fn check_queue(&mut self) {
        for name in [&self.names.queue, &self.names.deadlines] {
            let mut key = self.ctx.open(name, Access::Write);
            if key.expires_at().is_some() {
                write::persist(self.ctx, &mut key, name);
            }
        }
        if !self.mended {
            repair::repair(self);
        }
    }

    /// The list's index of a waiter. The ends of the list were compared when the keys were
    /// opened; if somebody has changed its middle, that shows here, and is mended.
    fn index_in_list(&mut self, owner: &[u8]) -> Option<usize> {
        let index = self.known.line.position(owner)?;
        let queue = self.ctx.open(&self.names.queue, Access::Read);
        let found = queue.list_get(index);
        if found.is_some_and(|found| found.as_slice() == owner) {
            return Some(index);
        }
        drop(queue);
        repair::repair(self);
        self.known.line.position(owner)
    }
}

/// The module's own event for what happened, on the lock's key.
fn own_event(event: &Event) -> Option<&'static CStr> {
    match event {
        Event::Acquired { .. } | Event::Granted { .. } => Some(c"fairlock.acquire"),
        Event::Released => Some(c"fairlock.release"),
        Event::Enqueued => Some(c"fairlock.enqueue"),
        Event::Cancelled { .. } | Event::Left | Event::Refused { .. } => Some(c"fairlock.cancel"),
        Event::Reaped { .. } => Some(c"fairlock.reap"),
        Event::HeldAgain { .. }
        | Event::TakenOver { .. }
        | Event::WakeUp { .. }
        | Event::Bound { .. }
        | Event::Unbound { .. } => None,
    }
}

impl State for Stored<'_> {
    fn is_held(&mut self) -> bool {
        self.lock.kind() != Kind::Empty
    }

    fn lease_end(&mut self) -> Option<Millis> {
        self.lock.expires_at()
    }

    fn holds(&mut self, owner: &[u8]) -> Holds {
        match self.lock.hash_get(&string(owner)) {
            None => Holds::None,
            Some(count) => number(count.as_slice()).map_or(Holds::Unreadable, Holds::Count),
        }
    }

    fn set_holds(&mut self, owner: &[u8], holds: i64) {
        let field = string(owner);
        let (lock, name) = (&mut self.lock, &self.names.lock);
        write::set_field(self.ctx, lock, name, &field, holds, c"hset");
    }

    fn set_lease_end(&mut self, at: Millis) {
        write::set_expiry(self.ctx, &mut self.lock, &self.names.lock, at);
    }

    fn free(&mut self) {
        write::delete(self.ctx, &mut self.lock, &self.names.lock);
    }

    fn token(&mut self) -> Result<Option<i64>, Refusal> {
        let (ctx, name) = (self.ctx, &self.names.token);
        *self.token.get_or_insert_with(|| {
            let key = ctx.open(name, Access::Read);
            match key.kind() {
                Kind::Empty => Ok(None),
                Kind::String => match key.bytes().as_deref().and_then(number) {
                    Some(token) if token >= 0 => {
                        self.greatest = self.greatest.max(token);
                        Ok(Some(token))
                    }
                    _ => Err(Refusal::UnreadableToken),
                },
                _ => Err(Refusal::TokenType),
            }
        })
    }

    fn set_token(&mut self, token: i64, expires: Millis) {
        let name = &self.names.token;
        let mut key = self.ctx.open(name, Access::Write);
        if self.token == Some(Ok(Some(token))) && key.kind() == Kind::String {
            write::set_expiry(self.ctx, &mut key, name, expires);
        } else {
            write::set_number(self.ctx, &mut key, name, token, expires);
        }
        self.token = Some(Ok(Some(token)));
        self.greatest = self.greatest.max(token);
    }

    fn greatest_token(&mut self) -> i64 {
        self.greatest
    }

    fn waiting(&mut self) -> usize {
        self.known.line.len()
    }

    fn nth(&mut self, index: usize) -> Option<Owner> {
        self.known.line.nth(index).map(Owner::clone)
    }

    fn position(&mut self, owner: &[u8]) -> Option<usize> {
        self.known.line.position(owner)
    }

    fn waiter(&mut self, owner: &[u8]) -> Option<Waiter> {
        self.known.line.get(owner)
    }

    fn set_waiter(&mut self, owner: &[u8], waiter: Waiter) {
        self.known.line.set(owner, waiter);
    }

    fn push(&mut self, owner: &[u8], waiter: Waiter, deadline: Millis) {
        self.known.line.push(Owner::from(owner), waiter);
        let owner = string(owner);
        write::set_score(self.ctx, &self.names.deadlines, &owner, deadline);
        write::push(self.ctx, &self.names.queue, &owner);
    }

    fn remove(&mut self, owner: &[u8]) {
        let Some(index) = self.index_in_list(owner) else {
            return;
        };
        let length = self.known.line.len();
        self.known.line.remove(owner);
        let owner = string(owner);
        write::remove_at(self.ctx, &self.names.queue, index, length, &owner);
        write::remove_members(self.ctx, &self.names.deadlines, &[owner]);
    }

    /// Each by itself costs replicas a walk of the queue, so from some number on the list is
    /// written anew, which costs everyone one walk in all.
    fn remove_all(&mut self, owners: &[Owner]) {
        let waiting = self.known.line.len();
        if owners.len() < 16 || owners.len() * 8 < waiting {
            for owner in owners {
                self.remove(owner);
            }
            return;
        }
        let mut members = Vec::with_capacity(owners.len());
        for owner in owners {
            if self.known.line.remove(owner).is_some() {
                members.push(string(owner));
            }
        }
        let rest: Vec<Str> = self
            .known
            .line
            .iter()
            .map(|(owner, _)| string(owner))
            .collect();
        write::rewrite_list(self.ctx, &self.names.queue, &rest);
        write::remove_members(self.ctx, &self.names.deadlines, &members);
    }

    fn deadline(&mut self, owner: &[u8]) -> Option<Millis> {
        let deadlines = self.ctx.open(&self.names.deadlines, Access::Read);
        deadlines.score(&string(owner)).map(instant)
    }

    fn set_deadline(&mut self, owner: &[u8], at: Millis) {
        write::set_score(self.ctx, &self.names.deadlines, &string(owner), at);
    }

    fn turn(&mut self) -> Option<Turn> {
        self.known.turn.clone()
    }

    fn set_turn(&mut self, turn: Option<Turn>) {
        self.known.turn = turn;
    }

    fn session(&mut self) -> &mut Option<Session> {
        &mut self.known.session
    }

    /// Announced at once, between the key events of what it caused and of what it causes.
    fn emit(&mut self, event: Event) {
        if let Some(name) = own_event(&event) {
            self.ctx.notify(NotifyEvent::MODULE, name, &self.names.lock);
        }
        self.events.push(event);
    }
}

/// A waiter that was found in the keys; it takes the lock itself, so its lease is its own affair.
pub(super) fn found(now: Now) -> Waiter {
    Waiter {
        presence: Presence::Found,
        lease: 0,
        session: None,
        deadline: Deadline::default(),
        since: now.steady,
    }
}

/// A whole number as the server would read it in a command.
pub(super) fn number(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let number: i64 = text.parse().ok()?;
    // Rust also takes "+1" and "007", which the server does not.
    (number.to_string() == text).then_some(number)
}

/// A score as an instant. Foreign scores can be fractions, negative, huge.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn instant(score: f64) -> Millis {
    // `as` takes what is out of range to the nearest end, and no number to 0.
    score as Millis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_server_reads_them() {
        assert_eq!(number(b"42"), Some(42));
        assert_eq!(number(b"-7"), Some(-7));
        assert_eq!(number(b"9223372036854775807"), Some(i64::MAX));
        for text in [
            &b""[..],
            b"+1",
            b"007",
            b" 1",
            b"1.0",
            b"9223372036854775808",
            b"\xff",
        ] {
            assert_eq!(number(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn any_score_is_an_instant() {
        assert_eq!(instant(1_700_000_000_000.75), 1_700_000_000_000);
        assert_eq!(instant(-5.0), 0);
        assert_eq!(instant(f64::INFINITY), u64::MAX);
        assert_eq!(instant(f64::NAN), 0);
    }
}
