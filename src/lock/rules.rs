//! The steps a client can take: acquire, join, release, renew, cancel, leave, break.
//!
//! Every step takes the state of one lock and the time, changes the state, and emits as events
//! what happened and what others have to do. After a step that could free the lock or change the head,
//! the head's turn has started (see [`super::turn`]): nobody waits while the lock is free.

use std::collections::HashSet;

use super::score;
use super::session;
use super::state::{
    Connection, Event, Heard, Holds, Millis, Now, Owner, Presence, State, Ticket, Waiter,
};
use super::turn::{grant, next_token, settle};

/// The limits that apply to a step, from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Time a polling waiter has to take the lock once it is its turn.
    pub turn: Millis,
    /// Patience of a waiter that was found in the keys without a deadline.
    pub patience: Millis,
    /// By how much the clocks of servers that follow each other may differ.
    pub clock_skew: Millis,
    /// Most waiters a lock may have.
    pub max_waiters: usize,
    /// Until then, waiters that were found in the keys count as alive: their server has just
    /// started, and they may be on their way back.
    pub grace: Heard,
    /// Whether Redisson's scripts are intercepted: the rules see all that its waiters do. Else Lua may
    /// be at work on the same queue.
    pub intercepts: bool,
    /// Whether waiters that were found in the keys ask again when they are woken, if they live: the rules
    /// see who asks by a script, or they are our own from before a restart.
    pub found_answer: bool,
}

/// One request for the lock.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Who asks.
    pub owner: &'a [u8],
    /// Time until the lock frees itself, from the moment it is acquired.
    pub lease: Millis,
    /// How long a polling waiter may stay silent.
    pub patience: Millis,
    /// A holder that asks again keeps its hold count.
    pub once: bool,
    /// The connection that the lock shall be bound to.
    pub session: Option<Connection>,
}

/// How a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Its connection is blocked until it is served.
    Blocked(Ticket),
    /// It asks again.
    Polling,
}

/// A lock obtained at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// The fencing token.
    pub token: i64,
    /// The owner held the lock before.
    pub reentrant: bool,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1 is the head.
    pub position: usize,
    /// Milliseconds after which asking again is worthwhile if no wake-up comes; at least 1.
    pub retry_after: Millis,
}

/// Why a step changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The owner is not the holder, or not by this token.
    NotHeld,
    /// The lock has as many waiters as it may have.
    QueueFull,
    /// What the lock's key holds is no lock: it is somebody's data.
    NotALock,
    /// It has no lease, as no lock is left by its holder: it may be somebody's data.
    NoLease,
    /// The hold count cannot grow.
    HoldsOverflow,
    /// The server may not use more memory.
    MemoryFull,
    /// Some of the lock's keys may be where this server cannot see them.
    Moving,
}

/// Takes the lock if it can be had now: it is free and nobody alive is ahead, or `ask.owner`
/// holds it already. `Ok(None)` if not; the queue then is as it was but for the dead.
///
/// # Errors
/// [`Refusal::NotALock`], [`Refusal::HoldsOverflow`].
pub fn acquire<S: State>(
    state: &mut S,
    ask: &Ask<'_>,
    rules: &Rules,
    now: Now,
) -> Result<Option<Acquired>, Refusal> {
    match state.holds(ask.owner) {
        Holds::Unreadable => Err(Refusal::NotALock),
        Holds::Count(count) => {
            require_lock(state)?;
            hold_again(state, ask, count, now).map(Some)
        }
        Holds::None if state.is_held() => {
            // Where somebody waits it was one when the first of them came.
            if state.waiting() == 0 {
                require_lock(state)?;
            }
            Ok(None)
        }
        Holds::None => {
            settle(state, rules, now, Some(ask.owner));
            let ahead = state.nth(0).is_some_and(|head| head.as_ref() != ask.owner);
            if ahead || state.is_held() {
                return Ok(None);
            }
            let token = grant(state, ask.owner, ask.lease, ask.session, now);
            leave_for_lock(state, ask.owner, ask.patience, rules, now);
            Ok(Some(Acquired {
                token,
                reentrant: false,
            }))
        }
    }
}

/// Refuses what would change somebody's data. The key is not empty.
fn require_lock<S: State>(state: &mut S) -> Result<(), Refusal> {
    state.is_lock().then_some(()).ok_or(Refusal::NotALock)
}

/// The owner does not hold the lock: it is free, somebody else's, or no lock at all.
fn not_held<S: State>(state: &mut S) -> Refusal {
    if state.is_held() && !state.is_lock() {
        Refusal::NotALock
    } else {
        Refusal::NotHeld
    }
}

/// An owner that takes the lock leaves the queue, if it was in it.
pub(super) fn leave_for_lock<S: State>(
    state: &mut S,
    owner: &[u8],
    patience: Millis,
    rules: &Rules,
    now: Now,
) {
    let waiter = state.waiter(owner);
    if let Some(waiter) = waiter {
        replace_blocked(state, waiter);
        state.remove(owner);
        score::lessen_behind(state, 0, patience, rules);
    }
    score::refresh_head_score(state, rules, now);
    state.emit(Event::Acquired {
        waited: waiter.map(|waiter| now.steady.saturating_sub(waiter.since)),
    });
}

fn hold_again<S: State>(
    state: &mut S,
    ask: &Ask<'_>,
    count: i64,
    now: Now,
) -> Result<Acquired, Refusal> {
    if !ask.once {
        let more = count.checked_add(1).ok_or(Refusal::HoldsOverflow)?;
        state.set_holds(ask.owner, more);
    }
    // A holder that came by a script has none.
    let token = state.token().unwrap_or_else(|| {
        let token = next_token(state, now);
        state.set_token(token);
        token
    });
    if let Some(connection) = ask.session {
        session::bind(state, ask.owner, connection, ask.lease, ask.once, now);
    }
    extend(state, ask.lease, now);
    state.emit(Event::HeldAgain {
        token,
        once: ask.once,
    });
    Ok(Acquired {
        token,
        reentrant: true,
    })
}

/// Sets the lease anew. Returns the lease now set: a connection that relies on the lock keeps it from
/// being too short to be renewed in time.
pub(super) fn extend<S: State>(state: &mut S, lease: Millis, now: Now) -> Millis {
    let lease = lease.max(session::least_lease(state));
    state.set_lease_end(now.after(lease));
    lease
}

/// Frees the lock, whoever holds it, and every connection that it was bound to.
pub(super) fn free<S: State>(state: &mut S) {
    state.free();
    session::end(state);
    state.emit(Event::Released);
}

/// Puts `ask.owner` in the queue, or lets it keep its place; to be called when [`acquire`] gave
/// `Ok(None)`. A place held by another blocked request of the same owner is taken over.
///
/// # Errors
/// [`Refusal::QueueFull`].
pub fn join<S: State>(
    state: &mut S,
    ask: &Ask<'_>,
    way: WaitMode,
    rules: &Rules,
    now: Now,
) -> Result<Place, Refusal> {
    let presence = match way {
        WaitMode::Blocked(ticket) => Presence::Blocked(ticket),
        WaitMode::Polling => Presence::Polling,
    };
    let known = state
        .waiter(ask.owner)
        .and_then(|waiter| Some((state.position(ask.owner)?, waiter)));
    let mut waiter = Waiter {
        presence,
        lease: ask.lease,
        patience: ask.patience,
        session: ask.session,
        deadline: now.listening_after(ask.patience),
        score: 0,
        since: known.map_or(now.steady, |(_, waiter)| waiter.since),
    };
    let index = if let Some((index, known)) = known {
        replace_blocked(state, known);
        state.set_waiter(ask.owner, waiter);
        score::refresh(state, ask.owner, index, rules, now);
        index
    } else {
        let waiting = state.waiting();
        if waiting >= rules.max_waiters {
            return Err(Refusal::QueueFull);
        }
        waiter.score = score::of_newcomer(state, ask.patience, rules, now);
        state.push(ask.owner, waiter);
        state.emit(Event::Enqueued);
        waiting
    };
    // A polling head that now blocks is served by the server itself.
    settle(state, rules, now, None);
    Ok(Place {
        position: index.saturating_add(1),
        retry_after: retry_after(state, ask.patience, now),
    })
}

/// Tells a waiter's blocked request, if it has one, that its place is taken over.
fn replace_blocked<S: State>(state: &mut S, waiter: Waiter) {
    if let Presence::Blocked(ticket) = waiter.presence {
        state.emit(Event::TakenOver { ticket });
    }
}

/// The lock may be free at the lease's end or the turn's end; half the patience bounds it so that
/// the answer is itself a sign of life in time.
fn retry_after<S: State>(state: &mut S, patience: Millis, now: Now) -> Millis {
    let until_free = match state.turn() {
        Some(turn) => Some(now.left_until(turn.until)),
        None => state
            .lease_end()
            .map(|end| end.saturating_sub(now.millis())),
    };
    until_free.unwrap_or(Millis::MAX).min(patience / 2).max(1)
}

/// Gives up one hold, or all of them. Returns the holds that remain; 0 means the lock was freed
/// and the next waiter's turn has started. `connection` is the one that asks.
///
/// # Errors
/// [`Refusal::NotHeld`] if `owner` does not hold the lock or `token` is given and is not the
/// current one; [`Refusal::NotALock`].
pub fn release<S: State>(
    state: &mut S,
    owner: &[u8],
    token: Option<i64>,
    all: bool,
    connection: Option<Connection>,
    rules: &Rules,
    now: Now,
) -> Result<i64, Refusal> {
    let left = match state.holds(owner) {
        Holds::None => return Err(not_held(state)),
        Holds::Unreadable => return Err(Refusal::NotALock),
        Holds::Count(count) if !all => count.saturating_sub(1).max(0),
        Holds::Count(_) => 0,
    };
    require_lock(state)?;
    if token.is_some() && state.token() != token {
        return Err(Refusal::NotHeld);
    }
    if left > 0 {
        state.set_holds(owner, left);
        session::released(state, connection, left);
    } else {
        free(state);
        settle(state, rules, now, None);
    }
    Ok(left)
}

/// Sets the holder's lease anew. Returns the lease now set.
///
/// # Errors
/// [`Refusal::NotHeld`] if `owner` does not hold the lock; [`Refusal::NotALock`].
pub fn renew<S: State>(
    state: &mut S,
    owner: &[u8],
    lease: Millis,
    now: Now,
) -> Result<Millis, Refusal> {
    match state.holds(owner) {
        Holds::None => return Err(not_held(state)),
        Holds::Unreadable => return Err(Refusal::NotALock),
        Holds::Count(_) => require_lock(state)?,
    }
    Ok(extend(state, lease, now))
}

/// A waiter of Redisson's has asked by a script, and sleeps for so long, or until the lease ends: it
/// asks again within its patience after that.
pub fn asked<S: State>(state: &mut S, owner: &[u8], patience: Millis, sleeps: Millis, now: Now) {
    let Some(mut waiter) = state.waiter(owner) else {
        return;
    };
    match waiter.presence {
        Presence::Polling | Presence::Found | Presence::Asked => {
            let sleeps = sleeps.max(score::lease_left(state, now));
            waiter.presence = Presence::Asked;
            waiter.patience = patience;
            waiter.deadline = now.listening_after(sleeps.saturating_add(patience));
            state.set_waiter(owner, waiter);
        }
        // A connection of ours waits for the same owner.
        Presence::Blocked(_) | Presence::Gone => (),
    }
}

/// Takes `owner` out of the queue. Returns whether it was in it.
pub fn cancel<S: State>(state: &mut S, owner: &[u8], rules: &Rules, now: Now) -> bool {
    leave(state, owner, S::remove, rules, now)
}

/// As [`cancel`], with what takes an owner out.
pub(super) fn leave<S: State>(
    state: &mut S,
    owner: &[u8],
    take_out: impl FnOnce(&mut S, &[u8]),
    rules: &Rules,
    now: Now,
) -> bool {
    let Some((index, waiter)) = state.position(owner).zip(state.waiter(owner)) else {
        return false;
    };
    take_out(state, owner);
    score::lessen_behind(state, index, waiter.patience, rules);
    state.emit(match waiter.presence {
        Presence::Blocked(ticket) => Event::Cancelled {
            ticket: Some(ticket),
        },
        Presence::Polling | Presence::Found | Presence::Asked => Event::Cancelled { ticket: None },
        Presence::Gone => Event::Left,
    });
    settle(state, rules, now, None);
    waiter.presence != Presence::Gone
}

/// Takes a hold back from a request whose client was gone before it could be told; `session` is the
/// connection that the lock was bound to with it. The owner may have asked again meanwhile, on
/// another connection: what that was told stands. Nothing happens if the lock has moved on since.
pub fn take_back<S: State>(
    state: &mut S,
    owner: &[u8],
    token: i64,
    session: Option<Connection>,
    rules: &Rules,
    now: Now,
) {
    // Not the holder any more, or by a later acquisition: the refusal is the right outcome.
    let _ = release(state, owner, Some(token), false, session, rules, now);
}

/// Frees the lock whoever holds it; without a lease only by `force`. Returns whether anyone did.
///
/// # Errors
/// [`Refusal::NotALock`], [`Refusal::NoLease`].
pub fn break_lock<S: State>(
    state: &mut S,
    force: bool,
    rules: &Rules,
    now: Now,
) -> Result<bool, Refusal> {
    let held = state.is_held();
    if held {
        require_lock(state)?;
        if state.lease_end().is_none() && !force {
            return Err(Refusal::NoLease);
        }
        free(state);
    }
    settle(state, rules, now, None);
    Ok(held)
}

/// Looks at a lock that is due, or whose keys somebody else has touched: whatever follows from
/// the time and from the keys as they are now happens.
pub fn look<S: State>(state: &mut S, rules: &Rules, now: Now) {
    session::end_if_lost(state);
    session::renew_if_due(state, now);
    settle(state, rules, now, None);
}

/// The waiters whose connections have closed leave the queue. One may be named twice: it came back
/// on another connection, and that has closed as well.
pub fn leave_gone<S: State>(state: &mut S, rules: &Rules, now: Now, owners: &[Owner]) {
    let mut named = HashSet::new();
    let gone: Vec<(usize, Owner, Millis)> = owners
        .iter()
        .filter_map(|owner| {
            let waiter = state.waiter(owner)?;
            let gone = waiter.presence == Presence::Gone && named.insert(Owner::clone(owner));
            let index = state.position(owner).filter(|_| gone)?;
            Some((index, Owner::clone(owner), waiter.patience))
        })
        .collect();
    score::lessen_behind_all(state, &gone, rules);
    let gone: Vec<Owner> = gone.into_iter().map(|(_, owner, _)| owner).collect();
    state.remove_all(&gone);
    for _ in &gone {
        state.emit(Event::Left);
    }
    settle(state, rules, now, None);
}
