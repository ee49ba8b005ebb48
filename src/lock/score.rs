//! The waiters' scores: each waiter's deadline in the keys, for scripts and for servers that know
//! nothing else of the waiter.
//!
//! Redisson's scripts drop the head of the queue while its score has passed, and stop at the first head
//! whose score has not. These rules judge a waiter by what they have seen of it instead. Scores matter to
//! them in two cases only: a score decides about a waiter that was found in the keys, and no score may make a
//! script drop a live waiter.
//!
//! A newcomer's score is now, plus what is left of the lease, plus its patience times its position:
//! what Redisson's scripts compute for a queue that has just formed. Scripts that run as Lua lower all scores by the
//! patience of each waiter that they serve. These rules do not. Only the head's score is kept ahead of now.

use super::clock::{Millis, Now, Wall};
use super::parts::Waiter;
use super::state::State;
use super::step::Step;

/// The score of a head that is blocked is set at most once in as many milliseconds.
const REFRESH: Millis = 1000;

/// What is left of the lease; 0 if the lock is free or has none.
pub fn lease_left<S: State>(state: &mut S, now: Now) -> Millis {
    let end = state.lease_end();
    end.map_or(0, |end| end.since(now.wall()))
}

/// How far ahead of now the score of a waiter is, at a 0-based position in a queue that has just formed.
pub fn ahead(lease_left: Millis, patience: Millis, index: usize) -> Millis {
    let position = Millis::try_from(index)
        .unwrap_or(Millis::MAX)
        .saturating_add(1);
    lease_left.saturating_add(patience.saturating_mul(position))
}

impl<S: State> Step<'_, S> {
    /// What is left of the lease, as [`lease_left`].
    pub(super) fn lease_left(&mut self) -> Millis {
        lease_left(self.state, self.now)
    }

    /// The score of a waiter at a 0-based position that has asked again: its own, unless so much time has passed since
    /// that was set that scripts might soon drop the waiter, or it is far off.
    pub(super) fn score_of_asking(&mut self, waiter: &Waiter, index: usize) -> Wall {
        let (patience, left) = (waiter.patience, self.lease_left());
        let least = ahead(0, patience, index).saturating_sub(patience / 2);
        if waiter.score < self.now.after(least.max(1)) || self.is_far_off(waiter, left) {
            return self.now.after(ahead(left, patience, index));
        }
        waiter.score
    }

    /// Rewrites the head's score if it is no longer ahead of now while the head lives. Scripts stop at the first head
    /// whose score is ahead, which protects all waiters behind it as well.
    pub(super) fn refresh_head_score(&mut self) {
        let head = self.state.waiter_at(0);
        let Some((owner, mut waiter)) = head.filter(|(_, waiter)| waiter.lives(self.now)) else {
            return;
        };
        let left = self.lease_left();
        if waiter.score <= self.now.wall() || self.is_far_off(&waiter, left) {
            // A blocked waiter lives, however short its patience.
            let least = if waiter.ticket().is_some() {
                REFRESH
            } else {
                1
            };
            waiter.score = self.now.after(ahead(left, waiter.patience.max(least), 0));
            self.state.set_waiter(&owner, waiter);
        }
    }

    /// Whether a score is farther ahead than the scripts' arithmetic can bring it. Another client wrote it,
    /// and scripts would build the scores of all later waiters on it.
    fn is_far_off(&mut self, waiter: &Waiter, left: Millis) -> bool {
        const FAR: Millis = 100;
        let patience = waiter.patience.max(self.rules.patience);
        let usual = ahead(left, patience, self.state.waiting());
        waiter.score > self.now.after(usual.saturating_mul(FAR))
    }

    /// When the head's score passes: it is to be rewritten if the head lives. If not, it was found, and is dead then.
    pub(super) fn head_score_ends(&mut self) -> Option<Wall> {
        let (_, head) = self.state.waiter_at(0)?;
        let matters = head.lives(self.now) || head.score > self.now.wall();
        // Scripts drop a head in the very millisecond of its score; what is due by the wall clock is looked at when its
        // millisecond is over.
        matters.then(|| head.score.before(1))
    }
}
