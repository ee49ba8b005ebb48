//! What happens when the lock is free: the head's turn.
//!
//! - A blocked head is made the holder in the same step (direct hand-off).
//! - A polling head is woken and has a turn to come; then it is dropped and the next turn starts.
//!   The polling waiters right behind it are woken as well and their deadlines pulled in to the
//!   end of the same turn: the living answer by asking again, the dead run out together, so a row
//!   of dead waiters costs one turn in total, not one each.

use super::rules::{Refusal, Rules, token_expiry};
use super::state::{Event, Millis, Now, Owner, Presence, State, Turn};

/// How many waiters behind a polling head are woken with it.
pub const WOKEN_WITH_HEAD: usize = 16;

/// Brings the lock to rest: afterwards it is held, or its queue is empty, or a polling head has
/// its turn. Nothing happens while it is held.
///
/// `asking` is the owner whose request is being decided. It is alive, whatever its deadline says,
/// and serves itself if it is the head, so settling stops there.
pub fn settle<S: State>(
    state: &mut S,
    rules: &Rules,
    now: Now,
    asking: Option<&[u8]>,
    events: &mut Vec<Event>,
) {
    while !state.is_held() {
        let Some(head) = state.nth(0) else { break };
        if asking == Some(head.as_ref()) {
            return;
        }
        if !serve_head(state, &head, rules, now, events) {
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
    events: &mut Vec<Event>,
) -> bool {
    let Some(waiter) = state.waiter(head) else {
        state.remove(head);
        return true;
    };
    match waiter.presence {
        Presence::Gone => state.remove(head),
        Presence::Blocked(ticket) => {
            let granted = grant(state, head, waiter.lease, rules, now);
            state.remove(head);
            events.push(match granted {
                Ok(token) => Event::Granted {
                    ticket,
                    owner: Owner::clone(head),
                    token,
                },
                Err(refusal) => Event::Refused { ticket, refusal },
            });
        }
        Presence::Polling | Presence::Found => {
            if is_dead(state, head, rules, now) {
                state.remove(head);
                events.push(Event::Reaped {
                    owner: Owner::clone(head),
                });
            } else {
                start_turn(state, head, rules, now, events);
                return false;
            }
        }
    }
    true
}

/// A polling head is dead once its turn, or before its turn its deadline, is over.
fn is_dead<S: State>(state: &mut S, head: &Owner, rules: &Rules, now: Now) -> bool {
    match state.turn() {
        Some(turn) if turn.owner == *head => turn.until <= now.millis(),
        _ => {
            let unknown = now.after(rules.patience);
            state.deadline(head).unwrap_or(unknown) <= now.millis()
        }
    }
}

/// Starts the turn of a polling head, unless it is running already.
fn start_turn<S: State>(
    state: &mut S,
    head: &Owner,
    rules: &Rules,
    now: Now,
    events: &mut Vec<Event>,
) {
    if state.turn().is_some_and(|turn| turn.owner == *head) {
        return;
    }
    let until = now.after(rules.turn);
    state.set_turn(Some(Turn {
        owner: Owner::clone(head),
        until,
    }));
    state.set_deadline(head, until);
    wake(head, events);
    for index in 1..=WOKEN_WITH_HEAD {
        let Some(owner) = state.nth(index) else { break };
        let presence = state.waiter(&owner).map(|waiter| waiter.presence);
        match presence {
            Some(Presence::Polling) => {
                let deadline = state.deadline(&owner).unwrap_or(until).min(until);
                state.set_deadline(&owner, deadline);
                wake(&owner, events);
            }
            // It keeps the deadline it has: it may be alive and never say so.
            Some(Presence::Found) => wake(&owner, events),
            // Behind a waiter that the server serves itself, nobody needs to hurry.
            _ => break,
        }
    }
}

fn wake(owner: &Owner, events: &mut Vec<Event>) {
    events.push(Event::WakeUp {
        owner: Owner::clone(owner),
    });
}

/// Makes `owner` the holder of a free lock and returns its fencing token.
pub(super) fn grant<S: State>(
    state: &mut S,
    owner: &[u8],
    lease: Millis,
    rules: &Rules,
    now: Now,
) -> Result<i64, Refusal> {
    let token = next_token(state, now)?;
    state.set_holds(owner, 1);
    state.set_lease_end(now.after(lease));
    state.set_token(token, token_expiry(lease, rules, now));
    state.set_turn(None);
    Ok(token)
}

/// The token of the next acquisition: one more than the last, or the time in microseconds where
/// the last is not known. Fewer than one acquisition of a lock takes place in a microsecond, so
/// the time is ahead of every token that was lost, and the greatest token of this server run
/// makes up for a clock that stepped back.
pub(super) fn next_token<S: State>(state: &mut S, now: Now) -> Result<i64, Refusal> {
    match state.token()? {
        Some(last) => last.checked_add(1).filter(|next| *next > 0),
        None => i64::try_from(now.micros)
            .ok()
            .map(|time| time.max(state.greatest_token().saturating_add(1))),
    }
    .ok_or(Refusal::UnreadableToken)
}

/// When the lock has to be looked at again if nobody touches it before: the end of the lease or
/// of the turn. `None` if nobody waits, or if it is held without a lease.
pub fn next_due<S: State>(state: &mut S) -> Option<Millis> {
    if state.waiting() == 0 {
        return None;
    }
    match state.turn() {
        Some(turn) => Some(turn.until),
        None => state.lease_end(),
    }
}
