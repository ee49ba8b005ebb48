//! A lock's keys as Redisson's scripts use them.

use crate::keyspace::write;
use crate::server::{Access, Ctx, Key, Kind, Str, string};

use super::run::{Call, LeftToLua};

/// Opens a hash, which may not be there.
pub fn hash<'c>(call: &Call<'c>, index: usize) -> Result<Key<'c>, LeftToLua> {
    let key = call.ctx.open(call.key(index)?, Access::Write);
    let fits = matches!(key.kind(), Kind::Empty | Kind::Hash);
    fits.then_some(key).ok_or(LeftToLua)
}

/// The list of waiters and the sorted set of their scores.
pub struct Waiters<'a> {
    ctx: &'a Ctx,
    queue: &'a Str,
    scores: &'a Str,
}

impl<'a> Waiters<'a> {
    /// Looks at both keys, which may not be there.
    pub fn open(call: &'a Call<'_>, queue: usize, scores: usize) -> Result<Self, LeftToLua> {
        let waiters = Self {
            ctx: call.ctx,
            queue: call.key(queue)?,
            scores: call.key(scores)?,
        };
        let list = waiters.list().kind();
        let set = waiters.set().kind();
        let fit = matches!(list, Kind::Empty | Kind::List)
            && matches!(set, Kind::Empty | Kind::SortedSet);
        fit.then_some(waiters).ok_or(LeftToLua)
    }

    fn list(&self) -> Key<'a> {
        self.ctx.open(self.queue, Access::Write)
    }

    fn set(&self) -> Key<'a> {
        self.ctx.open(self.scores, Access::Write)
    }

    /// The first in the list.
    pub fn head(&self) -> Option<Str> {
        self.list().list_get(0)
    }

    /// The last in the list.
    pub fn tail(&self) -> Option<Str> {
        let list = self.list();
        list.list_get(list.len().checked_sub(1)?)
    }

    /// All in the list.
    pub fn all(&self) -> Vec<Str> {
        let list = self.list();
        (0..list.len())
            .map_while(|index| list.list_get(index))
            .collect()
    }

    /// A waiter's score.
    pub fn score(&self, waiter: &Str) -> Option<f64> {
        self.set().score(waiter)
    }

    /// Drops heads whose score is not after `now`, up to the first one whose is. A head without a
    /// score ends it too; where `strict`, the script fails there.
    pub fn drop_dead(&self, now: f64, strict: bool) -> Result<(), LeftToLua> {
        while let Some(head) = self.head() {
            match self.score(&head) {
                Some(score) if score <= now => {
                    self.remove_score(&head);
                    self.pop();
                }
                None if strict => return Err(LeftToLua),
                _ => break,
            }
        }
        Ok(())
    }

    /// Takes the head out of the list.
    pub fn pop(&self) {
        let length = self.list().len();
        if let Some(head) = self.head() {
            write::remove_at(self.ctx, self.queue, 0, length, &head);
        }
    }

    /// Takes a waiter out of the sorted set.
    pub fn remove_score(&self, waiter: &Str) {
        write::remove_members(self.ctx, self.scores, std::slice::from_ref(waiter));
    }

    /// Takes every entry of a waiter out of the list.
    pub fn remove_entries(&self, waiter: &Str) {
        write::remove_elements(self.ctx, self.queue, waiter);
    }

    /// Lessens everybody's score, whether in the list or not.
    pub fn subtract_from_all(&self, wait: f64) {
        let members = self.set().members();
        let lessened = members
            .into_iter()
            .map(|(member, score)| (string(&member), score - wait));
        self.set_scores(&lessened.collect::<Vec<_>>());
    }

    /// Lessens some scores; who has none is given one.
    pub fn subtract_from(&self, waiters: &[Str], wait: f64) {
        for waiter in waiters {
            let score = self.score(waiter).unwrap_or(0.0) - wait;
            self.set_scores(&[(Str::clone(waiter), score)]);
        }
    }

    fn set_scores(&self, scores: &[(Str, f64)]) {
        write::set_scores(self.ctx, self.scores, scores, c"zincr");
    }

    /// Gives a waiter its score, and a place at the end of the list if it had no score.
    pub fn join(&self, waiter: &Str, score: f64) {
        let is_new = self.score(waiter).is_none();
        let scored = [(Str::clone(waiter), score)];
        write::set_scores(self.ctx, self.scores, &scored, c"zadd");
        if is_new {
            write::push(self.ctx, self.queue, waiter);
        }
    }
}

/// One more hold of an owner, or one less, and its new number.
pub fn change_holds(
    call: &Call<'_>,
    lock: &mut Key<'_>,
    owner: &Str,
    change: i64,
) -> Result<i64, LeftToLua> {
    let held = lock.hash_get(owner);
    let held = held.and_then(|held| super::number::whole(held.as_slice()));
    let holds = held.and_then(|held| held.checked_add(change));
    let holds = holds.ok_or(LeftToLua)?;
    write::set_field(call.ctx, lock, call.key(0)?, owner, holds, c"hincrby");
    Ok(holds)
}

/// Starts the lease anew.
pub fn lease(
    call: &Call<'_>,
    index: usize,
    lock: &mut Key<'_>,
    lease: u64,
) -> Result<(), LeftToLua> {
    let end = now().saturating_add(lease);
    write::set_expiry(call.ctx, lock, call.key(index)?, end);
    Ok(())
}

/// The server's clock in milliseconds.
pub fn now() -> u64 {
    crate::server::clock::wall_micros() / 1000
}

/// As PTTL: what is left of the lease, -1 if it has no end, -2 if there is no lock.
pub fn pttl(lock: &Key<'_>) -> f64 {
    if lock.is_empty() {
        return -2.0;
    }
    lock.expires_at().map_or(-1.0, |end| {
        let left = end.saturating_sub(now());
        super::number::double(i64::try_from(left).unwrap_or(i64::MAX))
    })
}
