//! A lock's state in plain memory, for unit, property and model tests of the rules.

use std::collections::BTreeMap;

use crate::lock::{
    Event, Holder, Holds, Now, Owner, Session, SharedHolders, State, Turn, Waiter, Wall,
};

/// One lock in memory. Everything is public: a test may put it in any state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The only holder and its hold count.
    pub holder: Option<(Owner, i64)>,
    /// Those that hold the lock together.
    pub shared: Option<SharedHolders>,
    /// Their hold counts.
    pub counts: BTreeMap<Owner, i64>,
    /// When the lock frees itself.
    pub lease_end: Option<Wall>,
    /// The holder's token.
    pub token: Option<i64>,
    /// Greatest token seen since the start.
    pub greatest_token: i64,
    /// The waiters in order.
    pub queue: Vec<(Owner, Waiter)>,
    /// Whose turn it is.
    pub turn: Option<Turn>,
    /// The connections that the lock is bound to.
    pub session: Option<Session>,
    /// What has happened and was not taken yet.
    pub events: Vec<Event>,
}

impl Memory {
    /// Lets time pass: what a key's expiry does in Redis, where a key lives through the millisecond
    /// in which it expires. Returns whether the lease has ended.
    pub fn expire(&mut self, now: Now) -> bool {
        let ended = self.lease_end.is_some_and(|end| end < now.wall());
        if ended {
            self.lose_key();
        }
        ended
    }

    /// Removes the lock's key, as its expiry or another client would. What is known of its shared holders
    /// stays.
    pub fn lose_key(&mut self) {
        let shared = self.shared.take();
        self.free();
        self.shared = shared;
    }

    /// What a restart of the server leaves: the keys, and no connections.
    pub fn restart(&mut self, now: Now) {
        self.turn = None;
        self.session = None;
        let shared = self.shared.take();
        let tokens = shared.iter().flat_map(SharedHolders::iter);
        let tokens = tokens.map(|(_, holder)| holder.token).chain(self.token);
        self.greatest_token = tokens.max().unwrap_or(0);
        self.shared = shared.map(|shared| {
            let mut found = SharedHolders::default();
            for (owner, of) in shared.iter() {
                let holder = Holder::new(of.terms, of.lease_end, of.token, None);
                found.insert(Owner::clone(owner), holder);
            }
            found
        });
        for (_, waiter) in &mut self.queue {
            *waiter = Waiter::found(waiter.score, now);
        }
    }

    /// The sessions of all holders.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        let shared = self.shared.iter().flat_map(SharedHolders::iter);
        let sessions = shared.filter_map(|(_, holder)| holder.session.as_ref());
        self.session.iter().chain(sessions)
    }

    /// 0-based position of an owner in the queue.
    pub fn position_of(&self, owner: &[u8]) -> Option<usize> {
        let mut queue = self.queue.iter();
        queue.position(|entry| entry.0.as_ref() == owner)
    }

    fn find(&mut self, owner: &[u8]) -> Option<&mut Waiter> {
        let place = self.position_of(owner)?;
        Some(&mut self.queue[place].1)
    }
}

impl State for Memory {
    fn is_held(&mut self) -> bool {
        self.holder.is_some() || !self.counts.is_empty()
    }

    fn lease_end(&mut self) -> Option<Wall> {
        self.lease_end
    }

    fn holds(&mut self, owner: &[u8]) -> Holds {
        let only = self.holder.as_ref().filter(|of| of.0.as_ref() == owner);
        let holds = only.map(|of| of.1).or(self.counts.get(owner).copied());
        holds.map_or(Holds::None, Holds::Count)
    }

    fn is_lock(&mut self) -> bool {
        true
    }

    fn set_holds(&mut self, owner: &[u8], holds: i64) {
        match self.counts.get_mut(owner) {
            Some(count) => *count = holds,
            None => self.holder = Some((Owner::from(owner), holds)),
        }
    }

    fn set_lease_end(&mut self, at: Wall) {
        self.lease_end = Some(at);
    }

    fn free(&mut self) {
        self.holder = None;
        self.shared = None;
        self.counts.clear();
        self.lease_end = None;
        self.token = None;
    }

    fn token(&mut self) -> Option<i64> {
        self.token
    }

    fn set_token(&mut self, owner: &[u8], token: i64) {
        match &mut self.shared {
            Some(shared) => {
                shared.change(owner, |holder| holder.token = token);
            }
            None => self.token = Some(token),
        }
        self.greatest_token = self.greatest_token.max(token);
    }

    fn last_token(&mut self) -> i64 {
        self.greatest_token
    }

    fn shared(&mut self) -> Option<&mut SharedHolders> {
        self.shared.as_mut()
    }

    fn admit(&mut self, owner: &[u8], holder: Holder) {
        if holder.terms.limit.is_exclusive() {
            self.set_holds(owner, 1);
            return self.set_token(owner, holder.token);
        }
        self.greatest_token = self.greatest_token.max(holder.token);
        self.counts.insert(Owner::from(owner), 1);
        let shared = self.shared.get_or_insert_default();
        shared.insert(Owner::from(owner), holder);
    }

    fn set_lease_of(&mut self, owner: &[u8], at: Wall) {
        if let Some(shared) = &mut self.shared {
            shared.change(owner, |holder| holder.lease_end = at);
        }
    }

    fn dismiss(&mut self, owner: &[u8]) {
        self.counts.remove(owner);
        if let Some(shared) = &mut self.shared {
            shared.remove(owner);
        }
    }

    fn waiting(&mut self) -> usize {
        self.queue.len()
    }

    fn position(&mut self, owner: &[u8]) -> Option<usize> {
        self.position_of(owner)
    }

    fn waiter(&mut self, owner: &[u8]) -> Option<Waiter> {
        self.find(owner).copied()
    }

    fn waiter_at(&mut self, index: usize) -> Option<(Owner, Waiter)> {
        self.queue.get(index).cloned()
    }

    fn set_waiter(&mut self, owner: &[u8], waiter: Waiter) {
        if let Some(known) = self.find(owner) {
            *known = waiter;
        }
    }

    fn push(&mut self, owner: &[u8], waiter: Waiter) {
        self.queue.push((Owner::from(owner), waiter));
    }

    fn remove(&mut self, owner: &[u8]) {
        self.queue.retain(|entry| entry.0.as_ref() != owner);
    }

    fn turn(&mut self) -> Option<Turn> {
        self.turn.clone()
    }

    fn set_turn(&mut self, turn: Option<Turn>) {
        self.turn = turn;
    }

    fn session(&mut self) -> &mut Option<Session> {
        &mut self.session
    }

    fn may_renew(&mut self) -> bool {
        true
    }

    fn emit(&mut self, event: Event) {
        self.events.push(event);
    }
}
