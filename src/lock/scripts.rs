//! The steps of Redisson's fair-lock scripts, where they run natively.
//!
//! A script is called with its client's own clock, and works on the holder, the queue and the scores.
//! As a step of these rules it does the same to the holder and the queue, and replies the same, with
//! these differences:
//!
//! - a script drops every head whose score is over by its client's clock. Here that ends a waiter
//!   of which nothing but its score is known, and never one that lives for sure;
//! - a script that takes the lock, or leaves the queue, lessens the scores of others. Here scores
//!   stay (see [`super::score`]), and what a script computes from them is computed from positions;
//! - a script that finds the lock free at another's turn is told 0, and its client asks again at
//!   once, without end. Here it is told what is left of that turn.
//!
//! Recognising scripts, their arguments and replies, and the latch that makes an unlock safe to
//! repeat are the affair of the server-facing side.

use super::rules::{Refusal, Rules, asked, extend, free, leave_for_lock};
use super::score;
use super::session;
use super::state::{Event, Holds, Millis, Now, Owner, Presence, State, Waiter};
use super::turn::{settle, wake};

/// A call of a script that takes the lock.
#[derive(Clone, Copy, Debug)]
pub struct TryLock<'a> {
    /// Who asks.
    pub owner: &'a [u8],
    /// The lease it wants.
    pub lease: Millis,
    /// The time by the client's clock.
    pub client: Millis,
    /// How it waits; `None` if it does not.
    pub wait: Option<Wait>,
    /// The server may not use more memory.
    pub memory_is_full: bool,
}

/// How a script joins the queue.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// How long it may stay silent.
    pub patience: Millis,
    /// What it is told if it has to wait.
    pub told: Told,
}

/// What a waiter is told: the milliseconds after which asking again is worthwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// When the head's time is over, however far behind it the waiter is (before 3.11.1).
    BehindHead,
    /// When the time of the waiter before it is over.
    BehindPrevious,
    /// A newcomer as before; who asks again, when the lease is over (since 3.32.0).
    Lease,
}

/// What has come of a call that takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The owner holds the lock, or holds it once more.
    Acquired,
    /// It does not, and does not wait.
    Refused,
    /// It waits, and is told this.
    Waits(i64),
}

/// What has come of a call that gives a hold up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlocked {
    /// The owner is not the holder.
    NotHeld,
    /// It holds the lock still, once less.
    HeldStill,
    /// The lock is free, or was.
    Freed,
}

/// Takes the lock if it is free and nobody alive is ahead, or if the owner holds it already; else
/// waits, if the script does.
///
/// # Errors
/// [`Refusal::MemoryFull`], [`Refusal::NotALock`], [`Refusal::HoldsOverflow`]; nothing has
/// changed then.
pub fn try_lock<S: State>(
    state: &mut S,
    call: &TryLock<'_>,
    rules: &Rules,
    now: Now,
) -> Result<Tried, Refusal> {
    let holds = match state.holds(call.owner) {
        Holds::Unreadable => return Err(Refusal::NotALock),
        Holds::Count(count) => Some(count.checked_add(1).ok_or(Refusal::HoldsOverflow)?),
        Holds::None => None,
    };
    if call.memory_is_full && needs_memory(state, call, holds, rules, now) {
        return Err(Refusal::MemoryFull);
    }
    drop_dead(state, Some(call.owner), call.client, rules, now);
    settle(state, rules, now, Some(call.owner));
    if let Some(holds) = holds {
        state.set_holds(call.owner, holds);
        extend(state, call.lease, now);
        return Ok(Tried::Acquired);
    }
    let is_next = |state: &mut S| state.nth(0).is_none_or(|head| *head == *call.owner);
    if !state.is_held() && is_next(state) {
        // Whatever was bound to a connection here was lost without a word.
        session::end(state);
        state.set_holds(call.owner, 1);
        state.set_lease_end(now.after(call.lease));
        state.set_turn(None);
        let patience = call.wait.map_or(0, |wait| wait.patience);
        leave_for_lock(state, call.owner, patience, rules, now);
        return Ok(Tried::Acquired);
    }
    let Some(wait) = call.wait else {
        settle(state, rules, now, None);
        return Ok(Tried::Refused);
    };
    let told = join(state, call, wait, rules, now);
    settle(state, rules, now, None);
    Ok(Tried::Waits(told))
}

/// Whether the call would write more than it deletes.
fn needs_memory<S: State>(
    state: &mut S,
    call: &TryLock<'_>,
    holds: Option<i64>,
    rules: &Rules,
    now: Now,
) -> bool {
    let free = !state.is_held();
    let joins = |state: &mut S, wait: Wait| {
        wait.told == Told::BehindHead || state.position(call.owner).is_none()
    };
    holds.is_some()
        || call.wait.is_some_and(|wait| joins(state, wait))
        || free && first_alive(state, call, rules, now).is_none_or(|head| *head == *call.owner)
}

/// The head once the dead ahead of it are dropped.
fn first_alive<S: State>(
    state: &mut S,
    call: &TryLock<'_>,
    rules: &Rules,
    now: Now,
) -> Option<Owner> {
    for index in 0..state.waiting() {
        let (owner, waiter) = state.waiter_at(index)?;
        if *owner == *call.owner || !is_over(&waiter, call.client, rules, now) {
            return Some(owner);
        }
    }
    None
}

/// Puts the owner in the queue, or lets it keep its place. Returns what it is told.
fn join<S: State>(state: &mut S, call: &TryLock<'_>, wait: Wait, rules: &Rules, now: Now) -> i64 {
    let left = score::lease_left(state, now);
    let known = state.position(call.owner);
    let index = known.unwrap_or_else(|| state.waiting());
    let told = told(state, call, wait, known, now);
    let (owner, patience) = (call.owner, wait.patience);
    let joined_at = call
        .client
        .saturating_add(score::ahead(left, patience, index));
    if known.is_none() {
        state.push(owner, Waiter::found(joined_at, now));
        state.emit(Event::Enqueued);
        // What a newcomer is told it does not wait for: it subscribes, and asks again.
        asked(state, owner, patience, 0, now);
        return told;
    }
    asked(
        state,
        owner,
        patience,
        Millis::try_from(told).unwrap_or(0),
        now,
    );
    if wait.told == Told::BehindHead {
        state.set_score(owner, joined_at);
    } else {
        score::refresh(state, owner, index, rules, now);
    }
    told
}

/// What a waiter is told; `index` if it is in the queue already.
fn told<S: State>(
    state: &mut S,
    call: &TryLock<'_>,
    wait: Wait,
    index: Option<usize>,
    now: Now,
) -> i64 {
    let behind = |state: &mut S, index: Option<usize>| {
        let time = index.and_then(|index| time_of(state, index, call.client, now));
        time.unwrap_or_else(|| lease_as_told(state, now))
    };
    let told = match (wait.told, index) {
        (Told::BehindHead, Some(0)) | (Told::Lease, Some(_)) => lease_as_told(state, now),
        (Told::BehindHead, _) => behind(state, Some(0)),
        (Told::BehindPrevious, Some(index)) => {
            let left = score::lease_left(state, now);
            let before = Millis::try_from(index).unwrap_or(Millis::MAX);
            whole(left.saturating_add(wait.patience.saturating_mul(before)))
        }
        (_, None) => {
            let last = state.waiting().checked_sub(1);
            behind(state, last)
        }
    };
    let told = if index.is_some() { told.max(0) } else { told };
    match state.turn() {
        Some(turn) if told <= 0 => whole(now.left_until(turn.until).max(1)),
        _ => told,
    }
}

/// The time until a waiter's patience would be over in a queue that has just formed. Of one that
/// was found in the keys, what its score says.
fn time_of<S: State>(state: &mut S, index: usize, client: Millis, now: Now) -> Option<i64> {
    let (_, waiter) = state.waiter_at(index)?;
    let left = score::lease_left(state, now);
    Some(whole(match waiter.presence {
        Presence::Found => waiter.score.saturating_sub(client),
        _ => score::ahead(left, waiter.patience, index),
    }))
}

/// The lease as a script tells it, as PTTL does: -1 for none, -2 for a lock that is free.
fn lease_as_told<S: State>(state: &mut S, now: Now) -> i64 {
    if !state.is_held() {
        return -2;
    }
    let end = state.lease_end();
    end.map_or(-1, |end| whole(end.saturating_sub(now.millis())))
}

fn whole(duration: Millis) -> i64 {
    i64::try_from(duration).unwrap_or(i64::MAX)
}

/// Gives up one hold. If it was the last one, the lock is free and the head's turn has started.
///
/// # Errors
/// [`Refusal::NotALock`], [`Refusal::HoldsOverflow`]; nothing has changed then.
pub fn unlock<S: State>(
    state: &mut S,
    owner: &[u8],
    lease: Millis,
    client: Millis,
    rules: &Rules,
    now: Now,
) -> Result<Unlocked, Refusal> {
    let holds = state.holds(owner);
    match holds {
        Holds::Unreadable => return Err(Refusal::NotALock),
        Holds::Count(i64::MIN) => return Err(Refusal::HoldsOverflow),
        Holds::Count(_) | Holds::None => (),
    }
    drop_dead(state, None, client, rules, now);
    let unlocked = match holds {
        _ if !state.is_held() => {
            wake_again(state, rules, now);
            Unlocked::Freed
        }
        Holds::Count(count) if count > 1 => {
            let left = count.saturating_sub(1);
            state.set_holds(owner, left);
            session::released(state, None, left);
            extend(state, lease, now);
            Unlocked::HeldStill
        }
        Holds::Count(_) => {
            state.count_down();
            free(state);
            Unlocked::Freed
        }
        Holds::None | Holds::Unreadable => Unlocked::NotHeld,
    };
    settle(state, rules, now, None);
    Ok(unlocked)
}

/// The lock is free already: its head is woken, as by a script that finds it so, also if its turn has
/// started before.
fn wake_again<S: State>(state: &mut S, rules: &Rules, now: Now) {
    let before = state.turn();
    settle(state, rules, now, None);
    if let Some(turn) = before.filter(|turn| state.turn().as_ref() == Some(turn)) {
        wake(state, &turn.owner);
    }
}

/// Frees the lock, whoever holds it. Returns whether anyone did; if not, this script wakes nobody.
pub fn force_unlock<S: State>(state: &mut S, client: Millis, rules: &Rules, now: Now) -> bool {
    drop_dead(state, None, client, rules, now);
    let held = state.is_held();
    if held {
        free(state);
        settle(state, rules, now, None);
    }
    held
}

/// Takes the owner out of the queue, unless a connection is blocked here for it.
pub fn leave<S: State>(state: &mut S, owner: &[u8], rules: &Rules, now: Now) {
    let waiter = state.waiter(owner);
    if waiter.is_some_and(|waiter| waiter.ticket().is_none()) {
        super::rules::leave(state, owner, S::withdraw, rules, now);
    }
}

/// Drops heads whose scores are over, up to the first one that lives, that has its turn, or that is
/// asking now.
fn drop_dead<S: State>(
    state: &mut S,
    asking: Option<&[u8]>,
    client: Millis,
    rules: &Rules,
    now: Now,
) {
    while let Some((head, waiter)) = state.waiter_at(0) {
        if !is_over(&waiter, client, rules, now) || asking == Some(head.as_ref()) {
            return;
        }
        let turn = state.turn().filter(|turn| turn.owner == head);
        if turn.is_some_and(|turn| !now.is_over(turn.until)) {
            return;
        }
        state.remove(&head);
        state.emit(Event::Reaped { owner: head });
    }
}

/// Whether a script may drop a waiter.
fn is_over(waiter: &Waiter, client: Millis, rules: &Rules, now: Now) -> bool {
    match waiter.presence {
        Presence::Found if !now.is_over(rules.grace) => false,
        Presence::Gone => false,
        _ => waiter.score <= client && !waiter.lives(now),
    }
}
