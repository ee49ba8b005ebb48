//! What happens when the lock is free: the head's turn.
//!
//! - A blocked head is made the holder in the same step (direct hand-off).
//! - A polling head is woken and has a turn to come; then it is dropped and the next turn starts.
//!   The polling waiters right behind it are woken as well and their deadlines pulled in to the
//!   end of the same turn: the living answer by asking again, the dead run out together, so a row
//!   of dead waiters costs one turn in total, not one each.

use super::rules::{Refusal, Rules, token_expiry};
use super::session;
use super::state::{
    Connection, Deadline, Event, Millis, Now, Owner, Presence, State, Tick, Turn, Waiter,
};

/// How many waiters behind a polling head are woken with it.
pub const WOKEN_WITH_HEAD: usize = 16;

/// Brings the lock to rest: afterwards it is held, or its queue is empty, or a polling head has
/// its turn; and whoever is the head now has its deadline in the keys.
///
/// `asking` is the owner whose request is being decided. It is alive, whatever its deadline says,
/// and serves itself if it is the head, so settling stops there.
pub fn settle<S: State>(state: &mut S, rules: &Rules, now: Now, asking: Option<&[u8]>) {
    serve(state, rules, now, asking);
    keep_head_true(state, rules, now);
}

/// Serves one head after the other while the lock is free.
fn serve<S: State>(state: &mut S, rules: &Rules, now: Now, asking: Option<&[u8]>) {
    while !state.is_held() {
        let Some(head) = state.nth(0) else { break };
        if asking == Some(head.as_ref()) {
            return;
        }
        if !serve_head(state, &head, rules, now, asking) {
            return;
        }
    }
    if state.turn().is_some() {
        state.set_turn(None);
    }
}

/// Gives the head its turn. Returns false if the head is to be waited for.
fn serve_head<S: State>(
    state: &mut S,
    head: &Owner,
    rules: &Rules,
    now: Now,
    asking: Option<&[u8]>,
) -> bool {
    let Some(waiter) = state.waiter(head) else {
        state.remove(head);
        return true;
    };
    match waiter.presence {
        Presence::Gone => {
            state.remove(head);
            state.emit(Event::Left);
        }
        Presence::Blocked(ticket) => {
            let granted = grant(state, head, waiter.lease, waiter.session, rules, now);
            state.remove(head);
            state.emit(match granted {
                Ok(token) => Event::Granted {
                    ticket,
                    owner: Owner::clone(head),
                    token,
                    session: waiter.session,
                    waited: now.steady.saturating_sub(waiter.since),
                },
                Err(refusal) => Event::Refused { ticket, refusal },
            });
        }
        Presence::Polling | Presence::Found | Presence::Asked => {
            if is_dead(state, head, &waiter, rules, now) {
                reap(state, head, rules, now, asking);
            } else {
                start_turn(state, head, rules, now);
                return false;
            }
        }
    }
    true
}

/// From so many dead waiters on it is cheaper to take them out of the keys together.
const MANY: usize = 16;

/// Drops the head, which is dead, and with it a long row of dead waiters right behind it: a crowd
/// of them must not keep the server from everybody else.
fn reap<S: State>(state: &mut S, head: &Owner, rules: &Rules, now: Now, asking: Option<&[u8]>) {
    let mut dead = vec![Owner::clone(head)];
    while let Some(next) = state.nth(dead.len()) {
        let waiter = state.waiter(&next).filter(|waiter| {
            let presence = waiter.presence;
            !matches!(presence, Presence::Blocked(_) | Presence::Gone)
                && asking != Some(next.as_ref())
        });
        if !waiter.is_some_and(|waiter| is_dead(state, &next, &waiter, rules, now)) {
            break;
        }
        dead.push(next);
    }
    if dead.len() < MANY {
        dead.truncate(1);
        state.remove(head);
    } else {
        state.remove_all(&dead);
    }
    for owner in dead {
        state.emit(Event::Reaped { owner });
    }
}

/// A polling head is dead once its turn, or before its turn its deadline, is over.
fn is_dead<S: State>(
    state: &mut S,
    head: &Owner,
    waiter: &Waiter,
    rules: &Rules,
    now: Now,
) -> bool {
    match state.turn() {
        Some(turn) if turn.owner == *head => turn.until <= now.tick(),
        _ if matches!(waiter.presence, Presence::Polling | Presence::Asked) => {
            waiter.deadline.tick <= now.tick()
        }
        _ if rules.grace > now.tick() => false,
        _ => {
            let unknown = now.after(rules.patience);
            state.deadline(head).unwrap_or(unknown) <= now.millis()
        }
    }
}

/// Starts the turn of a polling head, unless it is running already.
fn start_turn<S: State>(state: &mut S, head: &Owner, rules: &Rules, now: Now) {
    if state.turn().is_some_and(|turn| turn.owner == *head) {
        return;
    }
    let until = now.deadline_after(rules.turn);
    state.set_turn(Some(Turn {
        owner: Owner::clone(head),
        until: until.tick,
    }));
    pull_in(state, head, until);
    wake(state, head);
    for index in 1..=WOKEN_WITH_HEAD {
        let Some(owner) = state.nth(index) else { break };
        let Some(mut waiter) = state.waiter(&owner) else {
            break;
        };
        match waiter.presence {
            Presence::Polling if waiter.deadline.tick > until.tick => {
                pull_in(state, &owner, until);
            }
            // Not its score: the next script lessens it, and the one after that would drop the
            // waiter, however alive.
            Presence::Asked => {
                waiter.deadline.tick = waiter.deadline.tick.min(until.tick);
                state.set_waiter(&owner, waiter);
            }
            // A waiter that was found keeps the deadline it has: it may be alive and never say so.
            Presence::Polling | Presence::Found => (),
            // Behind a waiter that the server serves itself, nobody needs to hurry.
            Presence::Blocked(_) | Presence::Gone => break,
        }
        wake(state, &owner);
    }
}

/// Sets a polling waiter's deadline to the end of a turn.
fn pull_in<S: State>(state: &mut S, owner: &Owner, until: Deadline) {
    if let Some(mut waiter) = state.waiter(owner) {
        waiter.deadline = until;
        state.set_waiter(owner, waiter);
        state.set_deadline(owner, until.wall);
    }
}

/// Keeps the head's deadline in the keys true, whatever scripts did to it: they drop a head whose
/// deadline is over and stop at one whose deadline is not, so it shields all behind it. A head that
/// is dead, or that was found and may be at any time, shields nobody for long: then that of the
/// first who lives behind it is kept true as well.
pub(super) fn keep_head_true<S: State>(state: &mut S, rules: &Rules, now: Now) {
    for index in 0..=WOKEN_WITH_HEAD {
        let Some(owner) = state.nth(index) else {
            return;
        };
        let Some(waiter) = state.waiter(&owner) else {
            return;
        };
        if keep_true(state, &owner, waiter, rules, now) {
            return;
        }
    }
}

/// Keeps a waiter's deadline in the keys true. Returns whether the waiter lives for sure.
///
/// That of a blocked waiter is ahead of now, as is that of a Redisson client that has asked in
/// time; that of a polling one is the one it was given. A waiter that was found has no other than
/// what the keys say.
fn keep_true<S: State>(
    state: &mut S,
    owner: &Owner,
    mut waiter: Waiter,
    rules: &Rules,
    now: Now,
) -> bool {
    let stored = state.deadline(owner);
    let left = waiter.deadline.tick.saturating_sub(now.tick());
    match waiter.presence {
        Presence::Blocked(_) => {
            if left == 0 || stored.is_none_or(|at| at <= now.millis()) {
                waiter.deadline = now.deadline_after(rules.patience);
                state.set_waiter(owner, waiter);
                state.set_deadline(owner, waiter.deadline.wall);
            }
            true
        }
        Presence::Polling => {
            if left > 0 && waiter.deadline.wall <= now.millis() {
                // The wall clock was set ahead.
                waiter.deadline.wall = now.after(left);
                state.set_waiter(owner, waiter);
            }
            if stored != Some(waiter.deadline.wall) {
                state.set_deadline(owner, waiter.deadline.wall);
            }
            left > 0
        }
        Presence::Asked => {
            if left == 0 {
                // It has been silent for too long: what the keys say is all there is.
                waiter.presence = Presence::Found;
                state.set_waiter(owner, waiter);
            } else if stored.is_none_or(|at| at <= now.millis()) {
                state.set_deadline(owner, now.after(left.min(rules.patience)));
            }
            left > 0
        }
        Presence::Found | Presence::Gone => false,
    }
}

fn wake<S: State>(state: &mut S, owner: &Owner) {
    state.emit(Event::WakeUp {
        owner: Owner::clone(owner),
    });
}

/// Makes `owner` the holder of a free lock and returns its fencing token.
pub(super) fn grant<S: State>(
    state: &mut S,
    owner: &[u8],
    lease: Millis,
    connection: Option<Connection>,
    rules: &Rules,
    now: Now,
) -> Result<i64, Refusal> {
    let token = next_token(state, now)?;
    // Whatever was bound to a connection here was lost without a word.
    session::end(state);
    state.set_holds(owner, 1);
    state.set_lease_end(now.after(lease));
    state.set_token(token, token_expiry(lease, rules, now));
    state.set_turn(None);
    if let Some(connection) = connection {
        session::bind(state, owner, connection, lease, false, now);
    }
    Ok(token)
}

/// Ten years in microseconds: no clock steps back by more.
const FARTHEST_STEP_BACK: i64 = 10 * 365 * 86_400 * 1_000_000;

/// The token of the next acquisition: the time in microseconds, or one more than the last where
/// the time is not ahead of that. So tokens grow although some were lost: with their key, with the
/// last second of a file, or with a master whose replica had not heard of them. The clock has gone
/// on since.
///
/// A clock that stepped back is made up for by the last token or, where that is not known, the
/// greatest of this server run. What somebody wrote into one lock's token key must not use up the
/// tokens of all others: beyond any such step it does not count.
pub(super) fn next_token<S: State>(state: &mut S, now: Now) -> Result<i64, Refusal> {
    let time = i64::try_from(now.micros).map_err(|_| Refusal::UnreadableToken)?;
    let last = if let Some(last) = state.token()? {
        last
    } else {
        let greatest = state.greatest_token();
        greatest.min(time.saturating_add(FARTHEST_STEP_BACK))
    };
    let next = last.checked_add(1).filter(|next| *next > 0);
    next.map(|next| next.max(time))
        .ok_or(Refusal::UnreadableToken)
}

/// When a lock has to be looked at again if nobody touches it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// By the wall clock, once this millisecond is over: the lease has ended and somebody waits for
    /// it, or the score of a head that lives is over.
    pub wall: Option<Millis>,
    /// By the steady clock: a turn ends, a session is to be renewed, or the deadline of a head
    /// that lives is over.
    pub tick: Option<Tick>,
}

/// When the lock has to be looked at again. Nothing of it if nobody waits and it is not bound to
/// a connection, or if it is held without a lease and whoever waits was found in the keys.
pub fn next_due<S: State>(state: &mut S, now: Now) -> Due {
    let renew = state.session().as_ref().map(|session| session.renew_at);
    if state.nth(0).is_none() {
        return Due {
            wall: None,
            tick: renew,
        };
    }
    let turn = state.turn().map(|turn| turn.until);
    if turn.is_none() && !state.is_held() {
        // It was freed without a word, as a lease that ends does, and nobody has been served yet.
        return Due {
            wall: None,
            tick: Some(now.tick()),
        };
    }
    let (deadline, score) = shield_ends(state, now);
    Due {
        wall: [state.lease_end(), score].into_iter().flatten().min(),
        tick: [renew, turn, deadline].into_iter().flatten().min(),
    }
}

/// When the first waiter that lives for sure does not shield those behind it from scripts any
/// more, by this server's count or by the keys.
fn shield_ends<S: State>(state: &mut S, now: Now) -> (Option<Tick>, Option<Millis>) {
    for index in 0..=WOKEN_WITH_HEAD {
        let Some(owner) = state.nth(index) else { break };
        let Some(waiter) = state.waiter(&owner) else {
            break;
        };
        let deadline = waiter.deadline.tick;
        let lives = match waiter.presence {
            Presence::Blocked(_) => true,
            Presence::Polling | Presence::Asked => deadline > now.tick(),
            Presence::Found | Presence::Gone => false,
        };
        if lives {
            // A key lives through the millisecond in which it expires; scripts drop a head whose
            // score is that.
            let score = state.deadline(&owner);
            return (Some(deadline), score.map(|at| at.saturating_sub(1)));
        }
    }
    (None, None)
}
