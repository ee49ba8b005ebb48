//! The waiters' scores: each waiter's deadline in the keys, for scripts and for servers that know
//! nothing else of the waiter.
//!
//! Redisson's scripts drop the head of the queue while its score has passed, and stop at the first head
//! whose score has not. These rules judge a waiter by what they have seen of it instead. Scores matter to
//! them in two cases only: a score decides about a waiter that was found in the keys, and no score may make a
//! script drop a live waiter.
//!
//! A newcomer's score is now, plus what is left of the lease, plus its patience times its position:
//! what Redisson's scripts compute for a queue that has just formed. With interception off, scripts
//! may run as Lua beside the rules. A script builds each newcomer's score on that of the waiter before
//! it, and lowers all scores by the patience of each waiter that is served. While Redisson's waiters are in
//! the queue, the rules then do the same.

use super::clock::{Heard, Millis, Now};
use super::state::{Owner, Presence, Rules, State, Waiter};
use super::step::Step;

/// How many waiters behind a silent head are woken, and so how far behind it the first that lives may be.
pub const WOKEN_BEHIND: usize = 16;

/// What is left of the lease; 0 if the lock is free or has none.
pub fn lease_left<S: State>(state: &mut S, now: Now) -> Millis {
    let end = state.lease_end();
    end.map_or(0, |end| end.saturating_sub(now.millis()))
}

/// How far ahead of now the score of a waiter is, at a 0-based position in a queue that has just formed.
#[must_use]
pub fn ahead(lease_left: Millis, patience: Millis, index: usize) -> Millis {
    let position = Millis::try_from(index)
        .unwrap_or(Millis::MAX)
        .saturating_add(1);
    lease_left.saturating_add(patience.saturating_mul(position))
}

/// Whether a waiter's score is kept ahead of now. Where scripts run as Lua, the scripts keep the scores of their own
/// waiters.
fn is_shield(waiter: &Waiter, rules: &Rules, now: Now) -> bool {
    waiter.lives(now) && (rules.intercepts || waiter.presence != Presence::Asked)
}

impl<S: State> Step<'_, S> {
    /// What is left of the lease, as [`lease_left`].
    pub(super) fn lease_left(&mut self) -> Millis {
        lease_left(self.state, self.now)
    }

    /// Whether scripts rely on the scores: scripts may run as Lua, and Redisson's waiters are in the queue.
    fn scripts_count(&mut self) -> bool {
        !self.rules.intercepts && self.state.scripted() > 0
    }

    /// The score of an owner that joins the end of the queue now.
    pub(super) fn score_of_newcomer(&mut self, patience: Millis) -> Millis {
        let waiting = self.state.waiting();
        if self.scripts_count()
            && let Some((_, last)) = self.state.waiter_at(waiting.saturating_sub(1))
        {
            return last.score.saturating_add(patience);
        }
        let left = self.lease_left();
        self.now.after(ahead(left, patience, waiting))
    }

    /// A waiter at a 0-based position has asked: sets its score anew, if so much time has passed since the score
    /// was set that scripts might soon drop the waiter.
    pub(super) fn refresh_score(&mut self, owner: &[u8], index: usize) {
        if self.scripts_count() {
            return;
        }
        let Some(waiter) = self.state.waiter(owner) else {
            return;
        };
        let patience = waiter.patience;
        let least = ahead(0, patience, index).saturating_sub(patience / 2);
        if waiter.score < self.now.after(least) {
            let left = self.lease_left();
            let score = self.now.after(ahead(left, patience, index));
            self.state.set_score(owner, score);
        }
    }

    /// A waiter with this patience, at this 0-based position, has been served or has left. Lowers the
    /// scores of the waiters behind it if scripts rely on that.
    pub(super) fn lessen_behind(&mut self, index: usize, patience: Millis) {
        if patience > 0 && self.scripts_count() {
            self.state
                .lessen_scores(&|other| if other >= index { patience } else { 0 });
        }
    }

    /// As [`Self::lessen_behind`], for many waiters that are about to leave at once.
    pub(super) fn lessen_behind_all(&mut self, leaving: &[(usize, Owner, Millis)]) {
        if leaving.is_empty() || !self.scripts_count() {
            return;
        }
        let mut sums: Vec<(usize, Millis)> = Vec::with_capacity(leaving.len());
        let mut leaving: Vec<_> = leaving
            .iter()
            .map(|(index, _, patience)| (*index, *patience))
            .collect();
        leaving.sort_unstable();
        let mut sum: Millis = 0;
        for (index, patience) in leaving {
            sum = sum.saturating_add(patience);
            sums.push((index, sum));
        }
        self.state.lessen_scores(&|index| {
            let ahead = sums.partition_point(|(leaving, _)| *leaving < index);
            let last = ahead.checked_sub(1).and_then(|last| sums.get(last));
            last.map_or(0, |(_, sum)| *sum)
        });
    }

    /// Rewrites the head's score if it is no longer ahead of now while the head lives. Scripts stop at the
    /// first head whose score is ahead, which protects all waiters behind it. A head that may be dead does not
    /// protect them for long; then the score of the first live waiter behind it is kept ahead as well.
    pub(super) fn refresh_head_score(&mut self) {
        // Most steps are on a lock that nobody waits for.
        if self.state.waiting() > 0 {
            self.refresh_first_scores();
        }
    }

    fn refresh_first_scores(&mut self) {
        for index in 0..=WOKEN_BEHIND {
            let Some((owner, waiter)) = self.state.waiter_at(index) else {
                return;
            };
            if is_shield(&waiter, self.rules, self.now) {
                let left = self.lease_left();
                if waiter.score <= self.now.millis() || self.is_far_off(&waiter, left) {
                    let score = self.now.after(ahead(left, waiter.patience.max(1), 0));
                    self.state.set_score(&owner, score);
                }
                return;
            }
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

    /// When the first waiter that lives stops protecting those behind it: by the listening clock, when
    /// its deadline is over; and by the wall clock, when its score is.
    pub(super) fn shield_ends(&mut self) -> (Option<Heard>, Option<Millis>) {
        for index in 0..=WOKEN_BEHIND {
            let Some((_, waiter)) = self.state.waiter_at(index) else {
                break;
            };
            if is_shield(&waiter, self.rules, self.now) {
                let deadline = waiter.ticket().is_none().then_some(waiter.deadline);
                // Scripts drop a head in the very millisecond of its score; what is due by the wall
                // clock is looked at when its millisecond is over.
                return (deadline, Some(waiter.score.saturating_sub(1)));
            }
        }
        (None, None)
    }

    /// Scripts run as Lua from now on: lines all scores up as Lua would have them for this queue, so
    /// that its arithmetic drops no waiter that lives. Walks the queue.
    pub fn line_up(&mut self) {
        let left = self.lease_left();
        let mut before = self.now.after(left);
        for index in 0..self.state.waiting() {
            let Some(owner) = self.state.nth(index) else {
                break;
            };
            let Some(waiter) = self.state.waiter(&owner) else {
                continue;
            };
            if waiter.presence == Presence::Found {
                // How the score was computed is known only to the script that wrote it.
                before = before.max(waiter.score);
                continue;
            }
            before = before.saturating_add(waiter.patience);
            if waiter.score < before {
                self.state.set_score(&owner, before);
            }
        }
    }
}
