//! A lock's keys as Redisson's scripts use them.

use crate::keyspace::write;
use crate::server::{Access, Key, Kind, Str, share, string};

use super::run::{Call, LeftToLua};

/// Opens a hash, which may not be there.
pub fn hash<'c>(call: &Call<'c>, index: usize) -> Result<Key<'c>, LeftToLua> {
    open(call, index, Kind::Hash, Access::Write)
}

fn open<'c>(
    call: &Call<'c>,
    index: usize,
    kind: Kind,
    access: Access,
) -> Result<Key<'c>, LeftToLua> {
    let key = call.ctx.open(call.key(index)?, access);
    key.fits(kind).then_some(key).ok_or(LeftToLua)
}

/// The list of waiters and the sorted set of their scores, opened for reading: most locks have
/// neither.
pub struct Waiters<'c> {
    queue: Key<'c>,
    scores: Key<'c>,
}

impl<'c> Waiters<'c> {
    /// Looks at both keys, which may not be there.
    pub fn open(call: &Call<'c>, queue: usize, scores: usize) -> Result<Self, LeftToLua> {
        Ok(Self {
            queue: open(call, queue, Kind::List, Access::Read)?,
            scores: open(call, scores, Kind::SortedSet, Access::Read)?,
        })
    }

    /// The first in the list.
    pub fn head(&mut self) -> Option<Str> {
        self.queue.list_get(0)
    }

    /// The last in the list.
    pub fn tail(&mut self) -> Option<Str> {
        self.queue.list_get(self.queue.len().checked_sub(1)?)
    }

    /// All in the list.
    pub fn all(&mut self) -> Vec<Str> {
        (0..self.queue.len())
            .map_while(|index| self.queue.list_get(index))
            .collect()
    }

    /// A waiter's score.
    pub fn score(&self, waiter: &Str) -> Option<f64> {
        self.scores.score(waiter)
    }

    /// Drops heads whose score is not after `now`, up to the first one whose is. A head without a
    /// score ends it too; where `strict`, the script fails there.
    pub fn drop_dead(&mut self, now: f64, strict: bool) -> Result<(), LeftToLua> {
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
    pub fn pop(&mut self) {
        if let Some(head) = self.head() {
            write::remove_at(&mut self.queue, 0, &head);
        }
    }

    /// Takes a waiter out of the sorted set.
    pub fn remove_score(&mut self, waiter: &Str) {
        write::remove_member(&mut self.scores, waiter);
    }

    /// Takes every entry of a waiter out of the list.
    pub fn remove_entries(&mut self, waiter: &Str) {
        write::remove_elements(&mut self.queue, waiter);
    }

    /// Lessens everybody's score, whether in the list or not.
    pub fn subtract_from_all(&mut self, wait: f64) {
        let members = self.scores.members();
        if members.is_empty() {
            return;
        }
        let lessened: Vec<(Str, f64)> = members
            .into_iter()
            .map(|(member, score)| (string(&member), score - wait))
            .collect();
        write::set_scores(&mut self.scores, &lessened, c"zincr");
    }

    /// Lessens some scores; who has none is given one.
    pub fn subtract_from(&mut self, waiters: &[Str], wait: f64) {
        for waiter in waiters {
            let score = self.score(waiter).unwrap_or(0.0) - wait;
            write::set_scores(&mut self.scores, &[(share(waiter), score)], c"zincr");
        }
    }

    /// Gives a waiter its score, and a place at the end of the list if it had no score.
    pub fn join(&mut self, waiter: &Str, score: f64) {
        let is_new = self.score(waiter).is_none();
        write::set_scores(&mut self.scores, &[(share(waiter), score)], c"zadd");
        if is_new {
            write::push(&mut self.queue, waiter);
        }
    }
}

/// So many holds more, or less, than are stored. Where the script would fail, or compute with what
/// is no whole number, it is left to do so.
pub fn changed(held: &Str, change: i64) -> Result<i64, LeftToLua> {
    let held = super::number::whole(held.as_slice());
    let holds = held.and_then(|held| held.checked_add(change));
    holds.ok_or(LeftToLua)
}

/// Sets the holds of an owner, as HINCRBY.
pub fn set_holds(lock: &mut Key<'_>, owner: &Str, holds: i64) {
    write::set_field(lock, owner, holds, c"hincrby");
}

/// Starts the lease anew.
pub fn lease(lock: &mut Key<'_>, lease: u64) {
    write::set_expiry(lock, now().saturating_add(lease));
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
