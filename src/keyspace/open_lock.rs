//! One lock in its keys, as the rules see it.

use std::cell::Cell;
use std::ffi::CStr;

use foldhash::fast::RandomState;
use redis_module::NotifyEvent;

use crate::lock::{Event, Holds, Millis, Now, Owner, Refusal, Rules, Session, State, Turn, Waiter};
use crate::server::{Access, Ctx, Key, Kind, Str, string};

use super::{Names, repair, write};

/// The waiters of a lock in their order.
pub type Line = crate::lock::line::Line<RandomState>;

/// What this server knows of a lock beyond its keys: who is blocked here, everyone's position,
/// whose turn it is. Lost in a restart, and made again from the keys.
#[derive(Debug, Default)]
pub struct Tracked {
    /// The queue's order.
    pub line: Line,
    /// The running turn.
    pub turn: Option<Turn>,
    /// The connections that the lock is bound to.
    pub session: Option<Session>,
    /// Among the waiters that were found may be some of ours, from before a restart or a failover.
    pub may_be_ours: bool,
    /// The last step was cut short by a panic: the queue is mended before the next.
    pub cut_short: bool,
}

impl Tracked {
    /// Whether there is nothing that the keys do not say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.line.is_empty() && self.session.is_none()
    }
}

thread_local! {
    /// Room for the events of the next step.
    static SPARE: Cell<Vec<Event>> = const { Cell::new(Vec::new()) };
}

/// What is to be made of a lock's queue and deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueView {
    /// As this server left them, most likely.
    AsLeft,
    /// Somebody else did something to them: they are mended.
    Touched,
    /// As before, and it may have been a script of Redisson's, run as Lua although scripts are
    /// intercepted: if it dropped waiters of Redisson's that live, they are put back.
    TouchedByScript,
    /// Some keys may be at another node of the cluster. To the rules nobody waits, and what is
    /// known of the queue stays as it is; holder and token are those that are here.
    Hidden,
}

/// A lock of which some key holds something else.
#[derive(Debug)]
pub struct Unusable {
    /// When the first of its keys expires.
    pub expires: Option<Millis>,
}

/// What a step changes beyond the keys. It is only lent to [`OpenLock`], so that it is there after the
/// step, however that ends.
#[derive(Debug)]
pub struct Taken {
    /// What is tracked beyond the keys.
    pub tracked: Tracked,
    /// The greatest token that was given since the server started.
    pub greatest: i64,
    /// What has happened so far.
    pub events: Vec<Event>,
}

impl Taken {
    /// As a step begins.
    #[must_use]
    pub fn new(tracked: Tracked, greatest: i64) -> Self {
        Self {
            tracked,
            greatest,
            events: SPARE.take(),
        }
    }

    /// Gives the room for events back, empty, for the next step.
    pub fn give_back(events: Vec<Event>) {
        // Not that of a step that dropped a hundred thousand waiters.
        if events.capacity() <= 1024 {
            SPARE.set(events);
        }
    }
}

/// A lock's keys, open for one step. Each has one handle, and all that the step does goes through
/// these.
#[derive(Debug)]
pub struct OpenLock<'c> {
    pub(super) ctx: &'c Ctx,
    /// The names of the lock's keys.
    pub names: &'c Names,
    /// What is known beyond the keys.
    pub tracked: &'c mut Tracked,
    greatest: &'c mut i64,
    events: &'c mut Vec<Event>,
    pub(super) rules: &'c Rules,
    pub(super) now: Now,
    /// Whether the queue is hidden.
    frozen: bool,
    lock: Key<'c>,
    pub(super) queue: Key<'c>,
    pub(super) scores: Key<'c>,
    /// The holder's token, once it was read; 0 if it has none.
    token: Option<i64>,
    lease_end: LeaseEnd,
    /// The list begins with the head that is known.
    is_head_known: bool,
    /// An owner that was asked about has a hold count.
    is_counted: bool,
    /// The owners of this step, as strings of the server.
    named: Named,
}

/// When a lock frees itself.
#[derive(Clone, Copy, Debug)]
enum LeaseEnd {
    /// It was not read yet.
    Unread,
    /// Then, or never.
    Is(Option<Millis>),
}

/// The owners that were last named to the server: most steps are about one or two.
#[derive(Debug, Default)]
pub(super) struct Named([Option<Str>; 2]);

impl Named {
    /// An owner as a string of the server.
    pub fn get(&mut self, owner: &[u8]) -> &Str {
        let is_it = |name: &Option<Str>| {
            let name = name.as_ref();
            name.is_some_and(|name| name.as_slice() == owner)
        };
        let [last, before] = &mut self.0;
        if !is_it(last) {
            std::mem::swap(last, before);
            if !is_it(last) {
                *last = None;
            }
        }
        last.get_or_insert_with(|| string(owner))
    }
}

thread_local! {
    /// The field of a lock's hash that holds its token: no owner is named like that.
    static TOKEN: Str = string(b"");
}

/// Microseconds in which no server restarts.
const AS_GOOD_AS_NOW: u64 = 1000;

/// A hold count, from 1.
fn hold_count(text: &[u8]) -> Option<i64> {
    number(text).filter(|count| *count >= 1)
}

/// The greatest token that keys may tell for all locks: that of a server that went on ahead of its clock,
/// which was itself ahead.
#[must_use]
pub fn farthest_token(rules: &Rules, now: Now) -> i64 {
    let skew = rules.clock_skew.saturating_mul(2 * 1000);
    i64::try_from(now.micros.saturating_add(skew)).unwrap_or(0)
}

/// The token of whoever holds the lock with this key.
pub(super) fn token_of(lock: &Key<'_>) -> Option<i64> {
    let token = TOKEN.with(|field| lock.hash_get(field))?;
    number(token.as_slice()).filter(|token| *token > 0)
}

impl<'c> OpenLock<'c> {
    /// Opens the keys. What others did to the queue since is mended first.
    ///
    /// # Errors
    /// [`Unusable`] if the lock, queue or deadline key holds something else; nothing has been
    /// written then.
    pub fn open(
        ctx: &'c Ctx,
        names: &'c Names,
        taken: &'c mut Taken,
        rules: &'c Rules,
        now: Now,
        state: QueueView,
    ) -> Result<Self, Unusable> {
        let Taken {
            tracked,
            greatest,
            events,
        } = taken;
        let touched = matches!(state, QueueView::Touched | QueueView::TouchedByScript);
        let frozen = state == QueueView::Hidden;
        let lock = ctx.open(&names.lock, Access::Write);
        // Most often nobody waits and nobody will: to see that there is no key is cheaper.
        let access = if frozen || (tracked.line.is_empty() && !touched) {
            Access::Read
        } else {
            Access::Write
        };
        let queue = ctx.open(&names.queue, access);
        let scores = ctx.open(&names.deadlines, access);
        if !(lock.fits(Kind::Hash) && queue.fits(Kind::List) && scores.fits(Kind::SortedSet)) {
            let expiries = [&lock, &queue, &scores].map(Key::expires_at);
            return Err(Unusable {
                expires: expiries.into_iter().flatten().min(),
            });
        }
        let mut stored = Self {
            ctx,
            names,
            tracked,
            greatest,
            events,
            rules,
            now,
            frozen,
            lock,
            queue,
            scores,
            token: None,
            lease_end: LeaseEnd::Unread,
            is_head_known: false,
            is_counted: false,
            named: Named::default(),
        };
        if touched || lock.tracked.line.is_empty() {
            stored.delete_if_nobodys();
        }
        if touched {
            stored.persist_queue();
        }
        if !frozen && (touched || !stored.queue_is_as_known()) {
            repair::repair(&mut stored, state == QueueView::TouchedByScript);
        }
        Ok(stored)
    }

    /// Refuses what cannot be decided without the queue, where it is hidden.
    ///
    /// # Errors
    /// [`Refusal::Moving`].
    pub fn require_queue(&self) -> Result<(), Refusal> {
        if self.frozen {
            Err(Refusal::Moving)
        } else {
            Ok(())
        }
    }

    /// What is known of the queue, as far as the rules may see it.
    fn line(&self) -> Option<&Line> {
        (!self.frozen).then_some(&self.tracked.line)
    }

    /// Whether the queue and the deadlines look as this server left them, in length and, where the
    /// lock is free, at the head. Key events tell of what others do; this is for what comes
    /// without one.
    fn queue_is_as_known(&mut self) -> bool {
        let length = self.tracked.line.len();
        let is_as_long = self.queue.len() == length && self.scores.len() == length;
        is_as_long && (self.is_held() || self.head_is_as_known())
    }

    /// Whether the list begins with the head that is known. To be asked before the head is served: nobody
    /// who is not there ever is.
    fn head_is_as_known(&mut self) -> bool {
        let Some(head) = self.tracked.line.nth(0) else {
            return true;
        };
        if !self.is_head_known {
            let found = self.queue.list_get(0);
            self.is_head_known = found.is_some_and(|found| found.as_slice() == &**head);
        }
        self.is_head_known
    }

    /// Somebody took the owner out of the lock's hash, and left the token.
    fn delete_if_nobodys(&mut self) {
        if self.lock.len() == 1 && self.token().is_some() {
            self.delete_lock();
        }
    }

    fn delete_lock(&mut self) {
        write::delete(&mut self.lock);
        self.token = Some(0);
        self.lease_end = LeaseEnd::Is(None);
    }

    /// QueueView and deadlines last as long as anyone waits: an expiry that somebody has put on them
    /// (Redisson's `expire()` does) would throw the waiters away.
    fn persist_queue(&mut self) {
        for key in [&mut self.queue, &mut self.scores] {
            if key.expires_at().is_some() {
                write::persist(key);
            }
        }
    }

    /// The list's index of a waiter. The head of the list was compared when the keys were
    /// opened; if somebody has changed its middle, that shows here, and is mended.
    fn index_in_list(&mut self, owner: &[u8]) -> Option<usize> {
        let index = self.tracked.line.position(owner)?;
        if index == 0 && self.is_head_known {
            return Some(index);
        }
        let found = self.queue.list_get(index);
        if found.is_some_and(|found| found.as_slice() == owner) {
            return Some(index);
        }
        repair::repair(self, false);
        self.tracked.line.position(owner)
    }

    /// Takes an owner out of what is known of the queue. Returns its index in the list, where it still is.
    fn forget_place(&mut self, owner: &[u8]) -> Option<usize> {
        if self.frozen {
            return None;
        }
        let index = self.index_in_list(owner)?;
        self.is_head_known &= index > 0;
        self.tracked.line.remove(owner);
        Some(index)
    }

    /// Whether these are the first in the queue, in this order, for the list as well.
    fn are_first(&mut self, owners: &[Owner]) -> bool {
        owners.iter().enumerate().all(|(index, owner)| {
            let listed = self.queue.list_get(index);
            self.tracked.line.nth(index) == Some(owner)
                && listed.is_some_and(|listed| listed.as_slice() == &**owner)
        })
    }

    fn remove_first(&mut self, owners: &[Owner]) {
        let mut members = Vec::with_capacity(owners.len());
        for owner in owners {
            self.tracked.line.remove(owner);
            members.push(string(owner));
        }
        write::remove_first(&mut self.queue, owners.len());
        write::remove_members(&mut self.scores, &members);
    }

    /// Takes over what the caller calls an owner, so that no string is made of it.
    pub fn learn_name(&mut self, owner: Option<Str>) {
        let [last, _] = &mut self.named.0;
        *last = owner;
    }

    /// The holder has been given this token.
    fn given(&mut self, token: i64) {
        self.token = Some(token);
        self.learn(token);
        self.keep_if_ahead(token);
    }

    /// All tokens from now on are greater than this one, which the holder has. What somebody has put far
    /// ahead for one lock is no other lock's affair.
    fn learn(&mut self, token: i64) {
        let next = (*self.greatest).saturating_add(1);
        if token <= next.max(farthest_token(self.rules, self.now)) {
            *self.greatest = (*self.greatest).max(token);
        }
    }

    /// Keeps a token for as long as it is ahead of the clock: should the server restart, its clock would
    /// not do.
    fn keep_if_ahead(&self, token: i64) {
        let micros = token.max(0).cast_unsigned();
        if micros > self.now.micros.saturating_add(AS_GOOD_AS_NOW) {
            let mut key = self.ctx.open(&self.names.token, Access::Write);
            write::set_number(&mut key, token, micros / 1000 + 1);
        }
    }
}

/// The module's own event for what happened, on the lock's key.
fn own_event(event: &Event) -> Option<&'static CStr> {
    match event {
        Event::Acquired { .. } | Event::Granted { .. } => Some(c"fairlock.acquire"),
        Event::Released => Some(c"fairlock.release"),
        Event::Enqueued => Some(c"fairlock.enqueue"),
        Event::Cancelled { .. } | Event::Left => Some(c"fairlock.cancel"),
        Event::Reaped { .. } => Some(c"fairlock.reap"),
        Event::HeldAgain { .. }
        | Event::TakenOver { .. }
        | Event::WakeUp { .. }
        | Event::Bound { .. }
        | Event::Unbound { .. } => None,
    }
}

impl State for OpenLock<'_> {
    fn is_held(&mut self) -> bool {
        self.lock.kind() != Kind::Empty
    }

    fn lease_end(&mut self) -> Option<Millis> {
        if let LeaseEnd::Is(at) = self.lease_end {
            return at;
        }
        let at = self.lock.expires_at();
        self.lease_end = LeaseEnd::Is(at);
        at
    }

    fn holds(&mut self, owner: &[u8]) -> Holds {
        if self.lock.is_empty() {
            return Holds::None;
        }
        match self.lock.hash_get(self.named.get(owner)) {
            None => Holds::None,
            Some(count) => {
                let count = hold_count(count.as_slice());
                self.is_counted = count.is_some();
                count.map_or(Holds::Unreadable, Holds::Count)
            }
        }
    }

    fn is_lock(&mut self) -> bool {
        let fields = self.lock.len();
        let named = match fields {
            2 if self.token().is_some() => 1,
            2 => 2 - usize::from(TOKEN.with(|field| self.lock.hash_get(field)).is_some()),
            _ => fields,
        };
        let count = || {
            self.lock
                .hash_named()
                .and_then(|(_, count)| hold_count(&count))
        };
        named == 1 && (self.is_counted || count().is_some())
    }

    fn take(&mut self, owner: &[u8], token: i64) {
        let owner = self.named.get(owner);
        TOKEN.with(|field| write::take_lock(&mut self.lock, owner, field, token));
        self.given(token);
    }

    fn set_holds(&mut self, owner: &[u8], holds: i64) {
        let event = if self.lock.is_empty() {
            c"hset"
        } else {
            c"hincrby"
        };
        let field = self.named.get(owner);
        write::set_field(&mut self.lock, field, holds, event);
    }

    fn set_lease_end(&mut self, at: Millis) {
        write::set_expiry(&mut self.lock, at);
        self.lease_end = LeaseEnd::Is(Some(at));
    }

    fn free(&mut self) {
        if let Some(token) = self.token() {
            // The clock may have been set back since it was given.
            self.keep_if_ahead(token);
        }
        self.delete_lock();
        if !self.frozen && !self.head_is_as_known() {
            repair::repair(self, false);
        }
    }

    fn count_down(&mut self) {
        write::announce_field(&self.lock, c"hincrby");
    }

    fn token(&mut self) -> Option<i64> {
        if self.token.is_none() {
            let token = token_of(&self.lock).unwrap_or(0);
            self.token = Some(token);
            // A run of the server before this one may have given it, by a clock that was ahead.
            self.learn(token);
        }
        self.token.filter(|token| *token > 0)
    }

    fn set_token(&mut self, token: i64) {
        TOKEN.with(|field| write::set_field(&mut self.lock, field, token, c"hset"));
        self.given(token);
    }

    fn last_token(&mut self) -> i64 {
        let key = self.ctx.open(&self.names.token, Access::Read);
        let kept = key.read(number).flatten();
        (*self.greatest).max(kept.unwrap_or(0))
    }

    fn waiting(&mut self) -> usize {
        self.line().map_or(0, Line::len)
    }

    fn scripted(&mut self) -> usize {
        self.line().map_or(0, Line::scripted)
    }

    fn nth(&mut self, index: usize) -> Option<Owner> {
        self.line()?.nth(index).map(Owner::clone)
    }

    fn position(&mut self, owner: &[u8]) -> Option<usize> {
        self.line()?.position(owner)
    }

    fn waiter(&mut self, owner: &[u8]) -> Option<Waiter> {
        self.line()?.get(owner)
    }

    fn waiter_at(&mut self, index: usize) -> Option<(Owner, Waiter)> {
        self.line()?.at(index).cloned()
    }

    fn set_waiter(&mut self, owner: &[u8], waiter: Waiter) {
        let score = self.tracked.line.get(owner).map_or(0, |known| known.score);
        self.tracked.line.set(owner, Waiter { score, ..waiter });
    }

    fn push(&mut self, owner: &[u8], waiter: Waiter) {
        self.tracked.line.push(Owner::from(owner), waiter);
        let owner = self.named.get(owner);
        write::set_score(&mut self.scores, owner, waiter.score);
        write::push(&mut self.queue, owner);
    }

    fn remove(&mut self, owner: &[u8]) {
        if let Some(index) = self.forget_place(owner) {
            let owner = self.named.get(owner);
            write::remove_at(&mut self.queue, index, owner);
            write::remove_member(&mut self.scores, owner);
        }
    }

    fn withdraw(&mut self, owner: &[u8]) {
        if let Some(index) = self.forget_place(owner) {
            let owner = self.named.get(owner);
            write::remove_member(&mut self.scores, owner);
            write::withdraw_at(&mut self.queue, index, owner);
        }
    }

    /// Each by itself costs replicas a walk of the queue, so from some number on the list is
    /// written anew, which costs everyone one walk in all. A row at the head costs none.
    fn remove_all(&mut self, owners: &[Owner]) {
        self.is_head_known = false;
        let waiting = self.tracked.line.len();
        if owners.len() >= 16 && self.are_first(owners) {
            self.remove_first(owners);
            return;
        }
        if owners.len() < 16 || owners.len() * 8 < waiting {
            for owner in owners {
                self.remove(owner);
            }
            return;
        }
        let mut members = Vec::with_capacity(owners.len());
        for owner in owners {
            if self.tracked.line.remove(owner).is_some() {
                members.push(string(owner));
            }
        }
        let rest: Vec<Str> = self
            .tracked
            .line
            .iter()
            .map(|(owner, _)| string(owner))
            .collect();
        write::rewrite_list(&mut self.queue, &rest);
        write::remove_members(&mut self.scores, &members);
    }

    fn set_score(&mut self, owner: &[u8], at: Millis) {
        let Some(waiter) = self.tracked.line.get(owner) else {
            return;
        };
        self.tracked.line.set(
            owner,
            Waiter {
                score: at,
                ..waiter
            },
        );
        write::set_score(&mut self.scores, self.named.get(owner), at);
    }

    fn lessen_scores(&mut self, lessening: &dyn Fn(usize) -> Millis) {
        let waiters: Vec<(Owner, Waiter)> = self
            .tracked
            .line
            .iter()
            .map(|(owner, waiter)| (Owner::clone(owner), waiter))
            .collect();
        let mut lessened = Vec::with_capacity(waiters.len());
        for (index, (owner, waiter)) in waiters.into_iter().enumerate() {
            let less = lessening(index);
            if less > 0 {
                let name = string(&owner);
                let score = self.scores.score(&name).unwrap_or(0.0) - write::score(less);
                let waiter = Waiter {
                    score: instant(score),
                    ..waiter
                };
                self.tracked.line.set(&owner, waiter);
                lessened.push((name, score));
            }
        }
        write::set_scores(&mut self.scores, &lessened, c"zincr");
    }

    fn turn(&mut self) -> Option<Turn> {
        self.tracked.turn.clone()
    }

    fn set_turn(&mut self, turn: Option<Turn>) {
        self.tracked.turn = turn;
    }

    fn session(&mut self) -> &mut Option<Session> {
        &mut self.tracked.session
    }

    /// Announced between the key events of what it caused and of what it causes.
    fn emit(&mut self, event: Event) {
        if let Some(name) = own_event(&event) {
            self.ctx.notify(NotifyEvent::MODULE, name, &self.names.lock);
        }
        self.events.push(event);
    }
}

/// Any number of so many digits is one of 64 bits.
const NEVER_TOO_MANY: usize = 18;

/// A whole number as the server would read it in a command.
#[must_use]
pub fn number(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    // Rust also takes "+1", "-0" and "007", which the server does not.
    let plain = match digits {
        [b'0'] => bytes.len() == 1,
        [first, ..] => matches!(first, b'1'..=b'9'),
        [] => false,
    };
    if !plain {
        return None;
    }
    let negative = digits.len() < bytes.len();
    if digits.len() <= NEVER_TOO_MANY {
        let (mut number, mut are_digits) = (0_i64, true);
        for byte in digits {
            let digit = byte.wrapping_sub(b'0');
            are_digits &= digit <= 9;
            // What wraps is not made of digits alone.
            number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
        }
        let signed = if negative {
            number.wrapping_neg()
        } else {
            number
        };
        return are_digits.then_some(signed);
    }
    digits.iter().try_fold(0_i64, |number, byte| {
        let digit = i64::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        let number = number.checked_mul(10)?;
        if negative {
            number.checked_sub(digit)
        } else {
            number.checked_add(digit)
        }
    })
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
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"999999999999999999"), Some(999_999_999_999_999_999));
        assert_eq!(
            number(b"-999999999999999999"),
            Some(-999_999_999_999_999_999)
        );
        assert_eq!(number(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(number(b"-9223372036854775808"), Some(i64::MIN));
        for text in [
            &b""[..],
            b"+1",
            b"007",
            b"-0",
            b"-",
            b" 1",
            b"1.0",
            b"1e3",
            b"0x10",
            b"12345678901234567x",
            b"9\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
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
