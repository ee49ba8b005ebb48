//! Opens a lock's keys for one step, and detects changes from outside the module since the last step.

use crate::lock::{Event, Holding, Millis, Now, Owner, Refusal, Rules, token};
use crate::server::{Access, Ctx, Key, Kind, Str, string};

use super::number::number;
use super::tracked::{Line, QueueView, Taken, Tracked, Unusable};
use super::{Names, repair, write};

/// A lock's keys, open for one step. Each key has one handle, and the whole step uses it.
#[derive(Debug)]
pub struct OpenLock<'c> {
    pub(super) ctx: &'c Ctx,
    /// The names of the lock's keys.
    pub names: &'c Names,
    /// What is known beyond the keys.
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
    /// The token in the lock's hash, once it was read; 0 if there is none.
    pub(super) token: Option<i64>,
    /// When the lock's key expires, once it was read; `None` in it: never, or there is no key.
    #[allow(clippy::option_option)]
    pub(super) lease_end: Option<Option<Millis>>,
    /// The list begins with the head that is tracked.
    pub(super) is_head_known: bool,
    /// An owner that was asked about has a hold count.
    pub(super) is_counted: bool,
    /// The owners of this step, as strings of the server.
    pub(super) named: Named,
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
    pub(super) static TOKEN: Str = string(b"");
}

/// A hold count, from 1.
pub(super) fn hold_count(text: &[u8]) -> Option<i64> {
    number(text).filter(|count| *count >= 1)
}

/// The token in the lock's hash.
pub(super) fn token_of(lock: &Key<'_>) -> Option<i64> {
    TOKEN
        .with(|field| lock.hash_get(field))
        .and_then(|text| read_token(&text))
}

fn read_token(text: &Str) -> Option<i64> {
    number(text.as_slice()).filter(|token| *token > 0)
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
        let Taken {
            tracked,
            greatest,
            events,
            ..
        } = taken;
        let frozen = queue == QueueView::Hidden;
        // Usually there are no waiters, and opening a key that does not exist is cheaper for reading.
        let access = if frozen || (tracked.line.is_empty() && !queue.is_touched()) {
            Access::Read
        } else {
            Access::Write
        };
        Self {
            ctx,
            names,
            tracked,
            greatest,
            events,
            rules,
            now,
            frozen,
            lock: ctx.open(&names.lock, Access::Write),
            queue: ctx.open(&names.queue, access),
            scores: ctx.open(&names.deadlines, access),
            shared: None,
            token: None,
            lease_end: None,
            is_head_known: false,
            is_counted: false,
            named: Named::default(),
        }
    }

    /// Makes the keys ready for the rules. If the queue was changed from outside the module, it is repaired.
    /// `may_be_shared`: there may be shared holders that are not tracked yet.
    ///
    /// # Errors
    /// [`Unusable`] if the lock, queue or deadline key holds something else; nothing has been
    /// written then.
    pub fn prepare(&mut self, queue: QueueView, may_be_shared: bool) -> Result<(), Unusable> {
        let are_usable = self.lock.fits(Kind::Hash)
            && self.queue.fits(Kind::List)
            && self.scores.fits(Kind::SortedSet);
        if !are_usable {
            let expiries = [&self.lock, &self.queue, &self.scores].map(Key::expires_at);
            return Err(Unusable {
                expires: expiries.into_iter().flatten().min(),
            });
        }
        let touched = queue.is_touched();
        let may_be_shared = touched || may_be_shared || self.tracked.shared.is_some();
        if may_be_shared && !self.frozen {
            self.open_shared()?;
        }
        self.delete_if_nobodys();
        self.mend_shared_if_touched();
        if touched {
            self.persist_queue();
        }
        if !self.frozen && (touched || !self.queue_is_as_tracked()) {
            repair::repair(self, queue == QueueView::Loaded);
        }
        Ok(())
    }

    /// Refuses a step that needs the queue, if the queue is hidden.
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

    /// Refuses a step that needs all holders, if some may be hidden.
    ///
    /// # Errors
    /// [`Refusal::Moving`].
    pub fn require_holders(&self) -> Result<(), Refusal> {
        let may_have_several = || self.tracked.shared.is_some() || self.lock.len() > 2;
        if self.frozen && may_have_several() {
            Err(Refusal::Moving)
        } else {
            Ok(())
        }
    }

    /// What is tracked of the queue, as far as the rules may see it.
    pub(super) fn line(&self) -> Option<&Line> {
        (!self.frozen).then_some(&self.tracked.line)
    }

    /// Whether the queue and the scores look as this server left them, in length and, if the
    /// lock is free, at the head. Key events report most changes from outside the module; this detects changes
    /// without an event.
    fn queue_is_as_tracked(&mut self) -> bool {
        let length = self.tracked.line.len();
        let is_as_long = self.queue.len() == length && self.scores.len() == length;
        is_as_long && (self.is_held() || self.head_is_as_tracked())
    }

    /// Whether the list begins with the head that is tracked. Called before the head is served: a waiter that is
    /// not in the list is never served.
    pub(super) fn head_is_as_tracked(&mut self) -> bool {
        let Some(head) = self.tracked.line.nth(0) else {
            return true;
        };
        if !self.is_head_known {
            let found = self.queue.list_get(0);
            self.is_head_known = found.is_some_and(|found| found.as_slice() == &**head);
        }
        self.is_head_known
    }

    /// Deletes the hash if another client took the owner out of it and left only the token.
    fn delete_if_nobodys(&mut self) {
        if self.lock.len() == 1 && self.token().is_some() {
            self.delete_lock();
        }
    }

    pub(super) fn delete_lock(&mut self) {
        write::delete(&mut self.lock);
        self.token = Some(0);
        self.lease_end = Some(None);
    }

    /// Removes an expiry that another client has set on queue and scores (Redisson's `expire()` does), which
    /// would delete the waiters. Both keys last as long as there are waiters.
    fn persist_queue(&mut self) {
        for key in [&mut self.queue, &mut self.scores] {
            if key.expires_at().is_some() {
                write::persist(key);
            }
        }
    }

    /// The list's index of a waiter. The head of the list was compared when the keys were
    /// opened. If another client has changed the middle, that is detected here, and repaired.
    fn index_in_list(&mut self, owner: &[u8]) -> Option<usize> {
        let head = self.tracked.line.nth(0);
        if self.is_head_known && head.is_some_and(|head| **head == *owner) {
            return Some(0);
        }
        let index = self.tracked.line.position(owner)?;
        let found = self.queue.list_get(index);
        if found.is_some_and(|found| found.as_slice() == owner) {
            return Some(index);
        }
        repair::repair(self, false);
        self.tracked.line.position(owner)
    }

    /// Takes an owner out of what is tracked of the queue. Returns its index in the list, where it still is.
    pub(super) fn forget_place(&mut self, owner: &[u8]) -> Option<usize> {
        if self.frozen {
            return None;
        }
        let index = self.index_in_list(owner)?;
        self.is_head_known &= index > 0;
        self.tracked.line.remove(owner);
        Some(index)
    }

    /// Whether these are the first in the queue, in this order, for the list as well.
    pub(super) fn are_first(&mut self, owners: &[Owner]) -> bool {
        owners.iter().enumerate().all(|(index, owner)| {
            let listed = self.queue.list_get(index);
            self.tracked.line.nth(index) == Some(owner)
                && listed.is_some_and(|listed| listed.as_slice() == &**owner)
        })
    }

    pub(super) fn remove_first(&mut self, owners: &[Owner]) {
        let mut members = Vec::with_capacity(owners.len());
        for owner in owners {
            self.tracked.line.remove(owner);
            members.push(string(owner));
        }
        write::remove_first(&mut self.queue, owners.len());
        write::remove_members(&mut self.scores, &members);
    }

    /// Uses the caller's own string for an owner, so that no new one is made.
    pub fn learn_name(&mut self, owner: Option<Str>) {
        let [last, _] = &mut self.named.0;
        *last = owner;
    }

    /// The holder has been given this token.
    pub(super) fn given(&mut self, token: i64) {
        self.token = Some(token);
        self.learn(token);
        self.keep_if_ahead(token);
    }

    /// The hold count of an owner, as text. Where the hash looks like a lock's, its token is read on the way.
    pub(super) fn count_of(&mut self, owner: &[u8]) -> Option<Str> {
        let owner = self.named.get(owner);
        if self.token.is_some() || self.lock.len() != 2 {
            return self.lock.hash_get(owner);
        }
        let [count, token] = TOKEN.with(|field| self.lock.hash_get_two([owner, field]));
        self.found(token.and_then(|text| read_token(&text)));
        count
    }

    /// This token is in the lock's hash.
    pub(super) fn found(&mut self, token: Option<i64>) {
        let token = token.unwrap_or(0);
        self.token = Some(token);
        // A run of the server before this one may have given it, by a clock that was ahead.
        self.learn(token);
    }

    /// Makes all later tokens greater than this one, which the holder has.
    pub(super) fn learn(&mut self, token: i64) {
        *self.greatest = token::greatest_after(*self.greatest, token, self.rules, self.now);
    }

    /// Keeps a token in its own key while it is ahead of the clock.
    pub(super) fn keep_if_ahead(&self, token: i64) {
        if let Some(until) = token::kept_until(token, self.now) {
            let mut key = self.ctx.open(&self.names.token, Access::Write);
            write::set_number(&mut key, token, until);
        }
    }
}
