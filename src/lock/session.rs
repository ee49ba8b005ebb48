//! Locks that live as long as a connection.
//!
//! A session does not replace the lease: the key still expires by itself if the server dies. It
//! makes the server renew the lease while a connection is open, and give the connection's holds
//! up when it closes. One owner can hold a lock through several connections, and partly without
//! any (ACQUIRE without SESSION), so a session counts which connection brought how many holds:
//! a connection that closes takes its own holds with it and nobody else's.

use super::rules::{Rules, free};
use super::state::{Connection, Event, Holds, Millis, Now, Owner, State, Tick};
use super::turn::settle;

/// A lock's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The holder for whom they are open.
    pub owner: Owner,
    /// The lease that each renewal gives.
    pub lease: Millis,
    /// When the lease is to be renewed next.
    pub renew_at: Tick,
    /// The connections and their holds, never empty.
    pub holders: Vec<(Connection, i64)>,
}

impl Session {
    /// How long a session waits between renewals: two may come too late before the lease ends.
    fn interval(&self) -> Millis {
        (self.lease / 3).max(1)
    }
}

/// Binds the lock to a connection, for a hold that it just got; or, if `moved`, for all holds:
/// the owner asked with ONCE, which adds none, on what may be its next connection.
pub(super) fn bind<S: State>(
    state: &mut S,
    owner: &[u8],
    connection: Connection,
    lease: Millis,
    moved: bool,
    now: Now,
) {
    let total = match state.holds(owner) {
        Holds::Count(count) => count,
        _ => 1,
    };
    let mut session = state.session().take().unwrap_or_else(|| Session {
        owner: Owner::from(owner),
        lease,
        renew_at: 0,
        holders: Vec::with_capacity(1),
    });
    if moved {
        for (other, _) in std::mem::take(&mut session.holders) {
            state.emit(Event::Unbound { connection: other });
        }
    }
    let mut holders = session.holders.iter_mut();
    if let Some((_, holds)) = holders.find(|(other, _)| *other == connection) {
        *holds = holds.saturating_add(1);
    } else {
        let holds = if moved { total } else { 1 };
        session.holders.push((connection, holds));
        state.emit(Event::Bound { connection });
    }
    session.lease = lease;
    session.renew_at = now.tick_after(session.interval());
    *state.session() = Some(session);
}

/// The lock is not held any more by the owner of its session, or only for the lease's time.
pub(super) fn end<S: State>(state: &mut S) {
    let Some(session) = state.session().take() else {
        return;
    };
    for (connection, _) in session.holders {
        state.emit(Event::Unbound { connection });
    }
}

/// The least lease that the lock may be given while a connection relies on it.
pub(super) fn least_lease<S: State>(state: &mut S) -> Millis {
    state.session().as_ref().map_or(0, |session| session.lease)
}

/// One hold less, `left` remain: the connection that gave it up loses one of its own, and nobody
/// has more holds than there are.
pub(super) fn released<S: State>(state: &mut S, connection: Option<Connection>, left: i64) {
    let Some(mut session) = state.session().take() else {
        return;
    };
    let mut holders = session.holders.iter_mut();
    if let Some((_, holds)) = holders.find(|(other, _)| Some(*other) == connection) {
        *holds = holds.saturating_sub(1);
    }
    let mut room = left;
    for (_, holds) in &mut session.holders {
        *holds = (*holds).min(room);
        room = room.saturating_sub(*holds);
    }
    keep(state, session);
}

/// Puts a session back without the connections that have no hold left.
fn keep<S: State>(state: &mut S, mut session: Session) {
    session.holders.retain(|(connection, holds)| {
        if *holds <= 0 {
            state.emit(Event::Unbound {
                connection: *connection,
            });
        }
        *holds > 0
    });
    *state.session() = (!session.holders.is_empty()).then_some(session);
}

/// A connection that the lock is bound to has closed: its holds are given up, and the lock is
/// freed if none remain.
pub fn connection_closed<S: State>(state: &mut S, connection: Connection, rules: &Rules, now: Now) {
    end_if_lost(state);
    let Some(mut session) = state.session().take() else {
        return;
    };
    let mut holders = session.holders.iter_mut();
    let Some((_, holds)) = holders.find(|(other, _)| *other == connection) else {
        *state.session() = Some(session);
        return;
    };
    let given_up = std::mem::take(holds);
    let holds = state.holds(&session.owner);
    let owner = Owner::clone(&session.owner);
    keep(state, session);
    let Holds::Count(count) = holds else {
        // Somebody has put something else there.
        end(state);
        return;
    };
    let left = count.saturating_sub(given_up);
    if left > 0 {
        state.set_holds(&owner, left);
    } else {
        free(state);
        settle(state, rules, now, None);
    }
}

/// Ends the session if its owner does not hold the lock any more: the lease ran out, or somebody
/// else took or deleted the key.
pub fn end_if_lost<S: State>(state: &mut S) {
    let owner = state
        .session()
        .as_ref()
        .map(|session| Owner::clone(&session.owner));
    if owner.is_some_and(|owner| state.holds(&owner) == Holds::None) {
        end(state);
    }
}

/// Renews the lease if it is time, or if somebody has cut it short. It is never made shorter.
pub fn renew_if_due<S: State>(state: &mut S, now: Now) {
    let Some(mut session) = state.session().take() else {
        return;
    };
    let end = state.lease_end();
    let safe = now.after(session.lease - session.lease / 2);
    if session.renew_at > now.tick() && end.is_some_and(|end| end >= safe) {
        *state.session() = Some(session);
        return;
    }
    let renewed = now.after(session.lease);
    if end.is_none_or(|end| end < renewed) {
        state.set_lease_end(renewed);
    }
    session.renew_at = now.tick_after(session.interval());
    *state.session() = Some(session);
}
