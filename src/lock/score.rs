//! The scores that stand beside the queue: each waiter's time in the keys, for scripts and for
//! servers that know nothing else of it.
//!
//! Redisson's scripts drop a head whose score is over, whoever it is, and stop at the first head
//! whose score is not. The rules here go by what they have seen of a waiter instead, so scores
//! matter to them in two ways only: they decide about waiters that were found in the keys, and
//! they must never make a script drop a waiter that lives.
//!
//! A newcomer's score is now, plus what is left of the lease, plus its patience times its position:
//! what Redisson's scripts compute for a queue that has just formed. With interception off they
//! may be at work beside the rules. They build each newcomer's score on that of the waiter before
//! it, and lessen all scores by the patience of each waiter that is served. While waiters of theirs are in
//! the queue, the rules then do the same.

use super::rules::Rules;
use super::state::{Millis, Now, Owner, Presence, State, Waiter};
use super::turn::WOKEN_BEHIND;

/// What is left of the lease; 0 if the lock is free or has none.
pub fn lease_left<S: State>(state: &mut S, now: Now) -> Millis {
    let end = state.lease_end();
    end.map_or(0, |end| end.saturating_sub(now.millis()))
}

/// How far ahead the score is of a waiter at a 0-based position in a queue that has just formed.
#[must_use]
pub fn ahead(lease_left: Millis, patience: Millis, index: usize) -> Millis {
    let position = Millis::try_from(index)
        .unwrap_or(Millis::MAX)
        .saturating_add(1);
    lease_left.saturating_add(patience.saturating_mul(position))
}

/// Whether scripts count on scores: they may run as Lua, and waiters of theirs are in the queue.
fn scripts_count<S: State>(state: &mut S, rules: &Rules) -> bool {
    !rules.intercepts && state.scripted() > 0
}

/// The score of an owner that joins the end of the queue now.
pub(super) fn of_newcomer<S: State>(
    state: &mut S,
    patience: Millis,
    rules: &Rules,
    now: Now,
) -> Millis {
    let waiting = state.waiting();
    if scripts_count(state, rules)
        && let Some((_, last)) = state.waiter_at(waiting.saturating_sub(1))
    {
        return last.score.saturating_add(patience);
    }
    let left = lease_left(state, now);
    now.after(ahead(left, patience, waiting))
}

/// A waiter at a 0-based position has asked: makes up for the time that has passed since its score
/// was set, once that could cost the waiter its place under scripts.
pub(super) fn refresh<S: State>(
    state: &mut S,
    owner: &[u8],
    index: usize,
    rules: &Rules,
    now: Now,
) {
    if scripts_count(state, rules) {
        return;
    }
    let Some(waiter) = state.waiter(owner) else {
        return;
    };
    let patience = waiter.patience;
    let least = ahead(0, patience, index).saturating_sub(patience / 2);
    if waiter.score < now.after(least) {
        let left = lease_left(state, now);
        state.set_score(owner, now.after(ahead(left, patience, index)));
    }
}

/// A waiter with this patience, at this 0-based position, has been served or has left: lessens the
/// scores of those behind it where scripts count on that.
pub(super) fn lessen_behind<S: State>(
    state: &mut S,
    index: usize,
    patience: Millis,
    rules: &Rules,
) {
    if patience > 0 && scripts_count(state, rules) {
        state.lessen_scores(&|other| if other >= index { patience } else { 0 });
    }
}

/// As [`lessen_behind`], for many waiters that are about to leave at once.
pub(super) fn lessen_behind_all<S: State>(
    state: &mut S,
    leaving: &[(usize, Owner, Millis)],
    rules: &Rules,
) {
    if leaving.is_empty() || !scripts_count(state, rules) {
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
    state.lessen_scores(&|index| {
        let ahead = sums.partition_point(|(leaving, _)| *leaving < index);
        let last = ahead.checked_sub(1).and_then(|last| sums.get(last));
        last.map_or(0, |(_, sum)| *sum)
    });
}

/// Keeps the score of the head ahead of now, as long as it lives: scripts stop at it, so it
/// protects all behind it. A head that may be dead protects nobody for long; then the score of the
/// first waiter behind it that lives is kept ahead as well.
pub(super) fn refresh_head_score<S: State>(state: &mut S, rules: &Rules, now: Now) {
    for index in 0..=WOKEN_BEHIND {
        let Some((owner, waiter)) = state.waiter_at(index) else {
            return;
        };
        if is_shield(&waiter, rules, now) {
            let left = lease_left(state, now);
            if waiter.score <= now.millis() || is_far_off(state, &waiter, left, rules, now) {
                state.set_score(&owner, now.after(ahead(left, waiter.patience.max(1), 0)));
            }
            return;
        }
    }
}

/// Whether a score is farther ahead than any arithmetic of scripts brings it: somebody else wrote it,
/// and scripts would line up everybody behind it.
fn is_far_off<S: State>(
    state: &mut S,
    waiter: &Waiter,
    left: Millis,
    rules: &Rules,
    now: Now,
) -> bool {
    const FAR: Millis = 100;
    let patience = waiter.patience.max(rules.patience);
    let usual = ahead(left, patience, state.waiting());
    waiter.score > now.after(usual.saturating_mul(FAR))
}

/// Whether a waiter's score is kept ahead of now. Where scripts run as Lua, the scores of their own
/// waiters are their affair.
fn is_shield(waiter: &Waiter, rules: &Rules, now: Now) -> bool {
    waiter.lives(now) && (rules.intercepts || waiter.presence != Presence::Asked)
}

/// When the first waiter that lives stops protecting those behind it: by the steady clock, when
/// its deadline is over; and by the wall clock, when its score is.
pub(super) fn shield_ends<S: State>(
    state: &mut S,
    rules: &Rules,
    now: Now,
) -> (Option<Millis>, Option<Millis>) {
    for index in 0..=WOKEN_BEHIND {
        let Some((_, waiter)) = state.waiter_at(index) else {
            break;
        };
        if is_shield(&waiter, rules, now) {
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
pub fn line_up<S: State>(state: &mut S, now: Now) {
    let left = lease_left(state, now);
    let mut before = now.after(left);
    for index in 0..state.waiting() {
        let Some(owner) = state.nth(index) else { break };
        let Some(waiter) = state.waiter(&owner) else {
            continue;
        };
        if waiter.presence == Presence::Found {
            // What is in its score only the script knows that wrote it.
            before = before.max(waiter.score);
            continue;
        }
        before = before.saturating_add(waiter.patience);
        if waiter.score < before {
            state.set_score(&owner, before);
        }
    }
}
