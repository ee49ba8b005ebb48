//! Implements the rules' [`State`] on a lock's open keys. Every method changes one or two keys,
//! and updates what is tracked beside them.

use std::ffi::CStr;

use redis_module::NotifyEvent;

use crate::fault;
use crate::lock::{
    Event, Holder, Holds, Owner, Session, SharedHolders, State, Turn, Waiter, Wall, token,
};
use crate::server::announce::record_event;
use crate::server::{Access, Kind, decimal};

use super::fields::{TOKEN, hold_count, token_of};
use super::number::number;
use super::open_lock::OpenLock;
use super::tracked::Line;
use super::write;

/// The module's own event for what happened, on the lock's key.
fn own_event(event: &Event) -> Option<&'static CStr> {
    match event {
        Event::Acquired { .. } | Event::Granted { .. } => Some(c"fairlock.acquire"),
        Event::Released { .. } => Some(c"fairlock.release"),
        Event::Enqueued => Some(c"fairlock.enqueue"),
        Event::Cancelled { .. } | Event::Left { .. } => Some(c"fairlock.cancel"),
        Event::Reaped { .. } => Some(c"fairlock.reap"),
        Event::HeldAgain { .. }
        | Event::TakenOver { .. }
        | Event::WakeUp { .. }
        | Event::Bound { .. }
        | Event::Unbound { .. }
        | Event::LeaseEnded { .. } => None,
    }
}

impl State for OpenLock<'_> {
    fn is_held(&mut self) -> bool {
        self.lock.kind() != Kind::Empty
    }

    fn lease_end(&mut self) -> Option<Wall> {
        let lock = &self.lock;
        *self
            .known
            .lease_end
            .get_or_insert_with(|| write::expiry(lock))
    }

    fn holds(&mut self, owner: &[u8]) -> Holds {
        if self.lock.is_empty() {
            return Holds::None;
        }
        let Some(count) = self.count_of(owner) else {
            return Holds::None;
        };
        let count = hold_count(count.as_slice());
        self.known.is_counted = count.is_some();
        count.map_or(Holds::Unreadable, Holds::Count)
    }

    fn is_lock(&mut self) -> bool {
        if self.tracked.shared.is_some() {
            return true;
        }
        let fields = self.lock.len();
        let has_token = fields == 2
            && (self.token().is_some() || TOKEN.with(|field| self.lock.hash_get(field)).is_some());
        if fields - usize::from(has_token) != 1 {
            return false;
        }
        self.known.is_counted
            || match self.lock.hash_named() {
                Some((_, count)) => hold_count(&count).is_some(),
                // The owner's field has expired. The server counts it until it has deleted it.
                None => has_token,
            }
    }

    fn set_holds(&mut self, owner: &[u8], holds: i64) {
        let event = if self.lock.is_empty() {
            c"hset"
        } else {
            c"hincrby"
        };
        let field = self.known.named.get(owner);
        write::set_field(&mut self.lock, field, &decimal(holds), event);
    }

    fn set_lease_end(&mut self, at: Wall) {
        write::set_expiry(&mut self.lock, at);
        self.known.lease_end = Some(Some(at));
        if self.tracked.shared.is_some() {
            self.keep_shared_key_until(at);
        }
    }

    fn free(&mut self) {
        if let Some(token) = self.token() {
            // The clock may have been set back since it was given.
            self.keep_if_ahead(token);
        }
        self.delete_lock();
        self.forget_shared();
    }

    fn count_down(&mut self) {
        write::announce_field(&self.lock, c"hincrby");
    }

    fn token(&mut self) -> Option<i64> {
        if self.known.token.is_none() {
            self.found(token_of(&self.lock));
        }
        self.known.token.filter(|token| *token > 0)
    }

    fn set_token(&mut self, owner: &[u8], token: i64) {
        TOKEN.with(|field| write::set_field(&mut self.lock, field, &decimal(token), c"hset"));
        self.given(token);
        self.change_shared(owner, |holder| holder.token = token);
    }

    fn last_token(&mut self) -> i64 {
        let key = self.ctx.open(&self.names.token, Access::Read);
        let kept = key.read(number).flatten().unwrap_or(0);
        (*self.greatest).max(token::kept(kept, self.now))
    }

    fn shared(&mut self) -> Option<&mut SharedHolders> {
        let shared = self.tracked.shared.as_deref_mut();
        shared.filter(|_| !self.frozen)
    }

    fn admit(&mut self, owner: &[u8], holder: Holder) {
        let name = self.known.named.get(owner);
        let token = decimal(holder.token);
        TOKEN.with(|field| write::take_lock(&mut self.lock, name, field, &token));
        self.given(holder.token);
        if holder.terms.limit.is_exclusive() {
            return;
        }
        self.write_shared(owner, &holder);
        let shared = self.tracked.shared.get_or_insert_default();
        shared.insert(Owner::from(owner), holder);
        self.widen_shared(owner);
    }

    fn set_lease_of(&mut self, owner: &[u8], at: Wall) {
        self.change_shared(owner, |holder| holder.lease_end = at);
    }

    fn dismiss(&mut self, owner: &[u8]) {
        let name = self.known.named.get(owner);
        write::remove_field(&mut self.lock, name);
        if let Some(key) = &mut self.shared {
            write::remove_field(key, name);
        }
        if let Some(shared) = &mut self.tracked.shared {
            shared.remove(owner);
        }
    }

    fn waiting(&mut self) -> usize {
        self.line().map_or(0, Line::len)
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
        let before = self.tracked.line.get(owner);
        self.tracked.line.set(owner, waiter);
        if before.is_some_and(|before| before.score != waiter.score) {
            let owner = self.known.named.get(owner);
            write::set_score(&mut self.scores, owner, waiter.score);
        }
    }

    fn push(&mut self, owner: &[u8], waiter: Waiter) {
        self.tracked.line.push(Owner::from(owner), waiter);
        let owner = self.known.named.get(owner);
        write::set_score(&mut self.scores, owner, waiter.score);
        write::push(&mut self.queue, owner);
        self.widen_scores();
    }

    fn remove(&mut self, owner: &[u8]) {
        if let Some(index) = self.forget_place(owner) {
            fault::point("out-of-the-queue", owner);
            let owner = self.known.named.get(owner);
            write::remove_at(&mut self.queue, index, owner, None);
            write::remove_member(&mut self.scores, owner);
        }
    }

    fn withdraw(&mut self, owner: &[u8]) {
        if let Some(index) = self.forget_place(owner) {
            let owner = self.known.named.get(owner);
            write::remove_member(&mut self.scores, owner);
            // The script uses LREM, wherever in the queue its owner is.
            write::remove_at(&mut self.queue, index, owner, Some(c"lrem"));
        }
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

    /// Not while the server lacks the replicas that it must have: it may be cut off, and replaced.
    fn may_renew(&mut self) -> bool {
        !self.ctx.lacks_replicas(&self.names.deadlines)
    }

    /// Recorded at once among the key events, so that subscribers see the module's events in the right order.
    fn emit(&mut self, event: Event) {
        if let Some(name) = own_event(&event) {
            record_event(NotifyEvent::MODULE, name, &self.names.lock);
        }
        self.events.push(event);
    }
}
