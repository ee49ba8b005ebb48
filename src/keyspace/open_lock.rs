//! A lock's keys, open for one step.

use crate::lock::{Event, Now, Refusal, Rules, Wall, token};
use crate::server::{Access, Ctx, Key, Str, string};

use super::fields::{TOKEN, read_token};
use super::names::Names;
use super::tracked::{Line, QueueView, Taken, Tracked};
use super::write;

/// A lock's keys, open for one step. Each key has one handle, and the whole step uses it.
pub struct OpenLock<'c> {
    pub(super) ctx: &'c Ctx,
    pub names: &'c Names,
    pub tracked: &'c mut Tracked,
    pub(super) greatest: &'c mut i64,
    pub(super) events: &'c mut Vec<Event>,
    pub(super) rules: &'c Rules,
    pub(super) now: Now,
    /// Whether the queue is hidden.
    pub(super) frozen: bool,
    pub(super) lock: Key<'c>,
    pub(super) queue: Key<'c>,
    pub(super) scores: Key<'c>,
    /// The shared holders, where there may be some.
    pub(super) shared: Option<Key<'c>>,
    pub(super) known: Known,
}

/// What a step has found in the keys, so that it need not ask the server again. Whoever changes a key keeps it true.
#[derive(Default)]
pub(super) struct Known {
    /// The token in the lock's hash, once it was read; 0 if there is none. Saves look-ups of its field.
    pub token: Option<i64>,
    /// When the lock's key expires, once it was read; `None` in it: never, or there is no key. Saves a thirtieth of a
    /// hand-off, which asks for it several times.
    #[allow(clippy::option_option)]
    pub lease_end: Option<Option<Wall>>,
    /// An owner that was asked about has a hold count. Saves a walk over the hash.
    pub is_counted: bool,
    /// The owners of this step, as strings of the server. Saves making them anew.
    pub named: Named,
}

/// The owners that were last named to the server: most steps are about one or two.
#[derive(Default)]
pub(super) struct Named([Option<Str>; 2]);

impl Named {
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

impl<'c> OpenLock<'c> {
    /// Opens the keys. [`OpenLock::prepare`] must follow. It is a step of its own because returning a `Result` here
    /// would copy the whole struct.
    pub fn open(
        ctx: &'c Ctx,
        names: &'c Names,
        taken: &'c mut Taken,
        rules: &'c Rules,
        now: Now,
        queue: QueueView,
    ) -> Self {
        let frozen = queue == QueueView::Hidden;
        // Usually there are no waiters, and opening a key that does not exist is cheaper for reading.
        let access = if frozen || (taken.tracked.line.is_empty() && !queue.is_touched()) {
            Access::Read
        } else {
            Access::Write
        };
        Self {
            ctx,
            names,
            tracked: &mut taken.tracked,
            greatest: &mut taken.greatest,
            events: &mut taken.events,
            rules,
            now,
            frozen,
            lock: ctx.open(&names.lock, Access::Write),
            queue: ctx.open(&names.queue, access),
            scores: ctx.open(&names.deadlines, access),
            shared: None,
            known: Known::default(),
        }
    }

    /// Refuses a step that needs the queue, if the queue is hidden.
    pub fn require_queue(&self) -> Result<(), Refusal> {
        (!self.frozen).then_some(()).ok_or(Refusal::Moving)
    }

    /// Refuses a step that needs all holders, if some may be hidden.
    pub fn require_holders(&self) -> Result<(), Refusal> {
        let may_have_several = || self.tracked.shared.is_some() || self.lock.len() > 2;
        let may_be_hidden = self.frozen && may_have_several();
        (!may_be_hidden).then_some(()).ok_or(Refusal::Moving)
    }

    /// What is tracked of the queue, as far as the rules may see it.
    pub(super) fn line(&self) -> Option<&Line> {
        (!self.frozen).then_some(&self.tracked.line)
    }

    pub(super) fn delete_lock(&mut self) {
        // A lock whose key has expired is deleted, and that was announced.
        if !self.lock.is_empty() {
            write::delete(&mut self.lock);
        }
        self.known.token = Some(0);
        self.known.lease_end = Some(None);
    }

    /// Uses the caller's own string for an owner, so that no new one is made.
    pub fn learn_name(&mut self, owner: Option<Str>) {
        let [last, _] = &mut self.known.named.0;
        *last = owner;
    }

    /// The holder has been given this token.
    pub(super) fn given(&mut self, token: i64) {
        self.known.token = Some(token);
        self.learn(token);
        self.keep_if_ahead(token);
    }

    /// The hold count of an owner, as text. Where the hash looks like a lock's, its token is read on the way.
    pub(super) fn count_of(&mut self, owner: &[u8]) -> Option<Str> {
        let owner = self.known.named.get(owner);
        if self.known.token.is_some() || self.lock.len() != 2 {
            return self.lock.hash_get(owner);
        }
        let [count, token] = TOKEN.with(|field| self.lock.hash_get_two([owner, field]));
        self.found(token.and_then(|text| read_token(&text)));
        count
    }

    /// This token is in the lock's hash.
    pub(super) fn found(&mut self, token: Option<i64>) {
        let token = token.unwrap_or(0);
        self.known.token = Some(token);
        // A run of the server before this one may have given it, by a clock that was ahead.
        self.learn(token);
    }

    /// Makes all later tokens greater than this one, which the holder has.
    pub(super) fn learn(&mut self, token: i64) {
        *self.greatest = token::greatest_after(*self.greatest, token, self.rules, self.now);
    }

    /// Keeps a token in its own key while it is ahead of the clock. In a slot that is being moved only if that key is
    /// here: what moves the keys one by one would stop at a key that is at both nodes.
    pub(super) fn keep_if_ahead(&self, token: i64) {
        if let Some(until) = token::kept_until(token, self.now)
            && self.ctx.serves(&self.names.token)
        {
            let mut key = self.ctx.open(&self.names.token, Access::Write);
            write::set_number(&mut key, token, until);
        }
    }
}
