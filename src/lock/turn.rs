//! What happens when the lock is free: the head's turn.
//!
//! - A blocked head is made the holder in the same step (direct hand-off).
//! - A polling head is woken, and nobody else. It has a turn to come: `fairlock.turn`, or its own
//!   patience if that is shorter. Then it is dropped and the next turn starts.
//! - A head that has been silent for a tenth of its turn may be dead, and others behind it as well.
//!   Then the polling waiters right behind it are woken too, and have until the end of the same
//!   turn: the living ask again, and the dead run out together. So a hand-off to a living waiter costs one
//!   message, and a row of dead waiters one turn.

use super::rules::Rules;
use super::score;
use super::session;
use super::state::{
    Connection, Event, Heard, Millis, Now, Owner, Presence, State, Tick, Turn, Waiter,
};

/// How many waiters behind a silent head are woken.
pub const WOKEN_BEHIND: usize = 16;

/// Brings the lock to rest: afterwards it is held, or its queue is empty, or a polling head has
/// its turn; and the head's score is true.
///
/// `asking` is the owner whose request is being decided. It is alive, whatever its deadline says,
/// and serves itself if it is the head, so settling stops there.
pub fn settle<S: State>(state: &mut S, rules: &Rules, now: Now, asking: Option<&[u8]>) {
    serve(state, rules, now, asking);
    score::refresh_head_score(state, rules, now);
}

/// Serves one head after the other while the lock is free.
fn serve<S: State>(state: &mut S, rules: &Rules, now: Now, asking: Option<&[u8]>) {
    while !state.is_held() {
        let Some((head, waiter)) = state.waiter_at(0) else {
            break;
        };
        if asking == Some(head.as_ref()) {
            return;
        }
        if !serve_head(state, &head, waiter, rules, now, asking) {
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
    waiter: Waiter,
    rules: &Rules,
    now: Now,
    asking: Option<&[u8]>,
) -> bool {
    match waiter.presence {
        Presence::Gone => {
            state.remove(head);
            state.emit(Event::Left);
        }
        Presence::Blocked(ticket) => {
            let token = grant(state, head, waiter.lease, waiter.session, now);
            state.remove(head);
            score::lessen_behind(state, 0, waiter.patience, rules);
            state.emit(Event::Granted {
                ticket,
                owner: Owner::clone(head),
                token,
                session: waiter.session,
                waited: now.steady.saturating_sub(waiter.since),
            });
        }
        Presence::Polling | Presence::Found | Presence::Asked => {
            if is_dead(state, head, &waiter, rules, now) {
                return reap(state, head, rules, now, asking);
            }
            wait_for(state, head, waiter, rules, now);
            return false;
        }
    }
    true
}

/// From so many dead waiters on it is cheaper to take them out of the keys together.
const MANY: usize = 16;

/// So many dead waiters are taken out in one step. The next step, which is due at once, goes on.
pub const REAPED_AT_ONCE: usize = 1000;

/// Drops the head, which is dead, and with it a long row of dead waiters right behind it: a crowd
/// of them must not keep the server from everybody else. Returns false if the row goes on behind these:
/// the next of them has a turn then that is over, so that nobody is served before it is dropped.
fn reap<S: State>(
    state: &mut S,
    head: &Owner,
    rules: &Rules,
    now: Now,
    asking: Option<&[u8]>,
) -> bool {
    let mut dead = vec![Owner::clone(head)];
    let mut goes_on = None;
    while let Some((next, waiter)) = state.waiter_at(dead.len()) {
        let is_spared = matches!(waiter.presence, Presence::Blocked(_) | Presence::Gone)
            || asking == Some(next.as_ref());
        if is_spared || !is_dead(state, &next, &waiter, rules, now) {
            break;
        }
        if dead.len() == REAPED_AT_ONCE {
            goes_on = Some(next);
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
    let Some(owner) = goes_on else { return true };
    state.set_turn(Some(Turn {
        owner,
        wakes_next: None,
        until: now.heard,
    }));
    false
}

/// A polling head is dead once its turn, or before its turn its deadline, is over. Of a waiter that
/// was found the score is all that is known; so it is of a silent waiter of Redisson's where its scripts
/// run as Lua, for it may have asked unseen.
fn is_dead<S: State>(
    state: &mut S,
    head: &Owner,
    waiter: &Waiter,
    rules: &Rules,
    now: Now,
) -> bool {
    if let Some(turn) = state.turn().filter(|turn| turn.owner == *head) {
        return now.is_over(turn.until);
    }
    let goes_by_score = match waiter.presence {
        Presence::Polling => false,
        Presence::Asked => !rules.intercepts && !waiter.lives(now),
        _ => true,
    };
    if goes_by_score {
        now.is_over(rules.grace) && waiter.score <= now.millis()
    } else {
        !waiter.lives(now)
    }
}

/// A polling head is to come: starts its turn, or goes on with it.
fn wait_for<S: State>(state: &mut S, head: &Owner, waiter: Waiter, rules: &Rules, now: Now) {
    let running = state.turn().filter(|turn| turn.owner == *head);
    let Some(mut turn) = running else {
        start_turn(state, head, waiter, rules, now);
        return;
    };
    if turn.wakes_next.is_some_and(|at| now.is_over(at)) {
        turn.wakes_next = None;
        wake_behind(state, rules, turn.until);
        state.set_turn(Some(turn));
    }
}

fn start_turn<S: State>(state: &mut S, head: &Owner, mut waiter: Waiter, rules: &Rules, now: Now) {
    let own = match waiter.presence {
        Presence::Polling => waiter.patience,
        Presence::Asked if waiter.lives(now) => {
            let left = now.left_until(waiter.deadline);
            left.min(waiter.patience)
        }
        _ if !now.is_over(rules.grace) => rules.turn,
        _ => waiter.score.saturating_sub(now.millis()),
    };
    let length = rules.turn.min(own).max(1);
    let until = now.listening_after(length);
    state.set_turn(Some(Turn {
        owner: Owner::clone(head),
        wakes_next: Some(now.listening_after((length / 10).max(1))),
        until,
    }));
    waiter.deadline = until;
    state.set_waiter(head, waiter);
    wake(state, head);
}

/// Wakes the polling waiters right behind a silent head. They have until the end of its turn to
/// ask again. One that was found and may live without ever saying so keeps its own time.
fn wake_behind<S: State>(state: &mut S, rules: &Rules, until: Heard) {
    for index in 1..=WOKEN_BEHIND {
        let Some((owner, mut waiter)) = state.waiter_at(index) else {
            break;
        };
        match waiter.presence {
            Presence::Polling | Presence::Asked => {
                waiter.deadline = waiter.deadline.min(until);
                state.set_waiter(&owner, waiter);
            }
            Presence::Found if rules.found_answer => {
                waiter.presence = Presence::Polling;
                waiter.patience = rules.patience;
                waiter.deadline = until;
                state.set_waiter(&owner, waiter);
            }
            Presence::Found => (),
            // Behind a waiter that the server serves itself, nobody needs to hurry.
            Presence::Blocked(_) | Presence::Gone => break,
        }
        wake(state, &owner);
    }
}

pub(super) fn wake<S: State>(state: &mut S, owner: &Owner) {
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
    now: Now,
) -> i64 {
    let token = next_token(state, now);
    // Whatever was bound to a connection here was lost without a word.
    session::end(state);
    state.take(owner, token);
    state.set_lease_end(now.after(lease));
    state.set_turn(None);
    if let Some(connection) = connection {
        session::bind(state, owner, connection, lease, false, now);
    }
    token
}

/// Ten years in microseconds: no clock steps back by more.
const FARTHEST_STEP_BACK: i64 = 10 * 365 * 86_400 * 1_000_000;

/// The token of the next acquisition: the time in microseconds, or one more than the last token where the
/// time is not ahead of that. So nothing has to be kept for a lock that is free: the clock has gone on since.
/// Beyond any step of a clock a token was not given by a server, and does not count.
pub(super) fn next_token<S: State>(state: &mut S, now: Now) -> i64 {
    let time = i64::try_from(now.micros).unwrap_or(i64::MAX / 2);
    let last = state.last_token();
    if last < time.saturating_add(FARTHEST_STEP_BACK) {
        time.max(last.saturating_add(1))
    } else {
        time
    }
}

/// Whether the queue can be left to Redisson's scripts, which run as Lua: none but theirs wait, and no
/// turn is running that these rules have started.
pub fn leaves_to_scripts<S: State>(state: &mut S, rules: &Rules) -> bool {
    let waiting = state.waiting();
    !rules.intercepts
        && waiting > 0
        && waiting == state.scripted()
        && state.turn().is_none()
        && state.session().is_none()
}

/// When a lock has to be looked at again if nobody touches it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// By the wall clock, once this millisecond is over: the lease has ended and somebody waits for
    /// it, or the score of a head that lives is over.
    pub wall: Option<Millis>,
    /// By the steady clock: a turn ends, those behind a silent head are to be woken, a session is to
    /// be renewed, or the deadline of a head that lives is over.
    pub tick: Option<Tick>,
}

/// When the lock has to be looked at again. Nothing of it if nobody waits and it is not bound to
/// a connection, or if it is held without a lease and whoever waits was found in the keys.
pub fn next_due<S: State>(state: &mut S, rules: &Rules, now: Now) -> Due {
    let renew = state.session().as_ref().map(|session| session.renew_at);
    if state.waiting() == 0 {
        return Due {
            wall: None,
            tick: renew,
        };
    }
    let turn = state.turn();
    if turn.is_none() && !state.is_held() {
        // It was freed without a word, as a lease that ends does, and nobody has been served yet.
        return Due {
            wall: None,
            tick: Some(now.tick()),
        };
    }
    let turn_ends = turn.as_ref().map(|turn| turn.until);
    let wakes_next = turn.and_then(|turn| turn.wakes_next);
    let (deadline, score) = score::shield_ends(state, rules, now);
    Due {
        wall: [state.lease_end(), score].into_iter().flatten().min(),
        tick: [turn_ends, wakes_next, deadline]
            .into_iter()
            .flatten()
            .map(|instant| now.tick_at(instant))
            .chain(renew)
            .min(),
    }
}
