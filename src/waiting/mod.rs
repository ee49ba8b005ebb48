//! Blocked clients, timers and hand-offs: carries out what the rules of the lock decide.
//!
//! Everything that changes a lock goes through [`step()`]. These call it:
//!
//! - a command takes a step at once: it parses, checks permissions, and calls [`step()`] with the rule to apply;
//! - an intercepted script does the same through [`step_of_script`];
//! - a timer rings when the first lock or the first WAIT is due. The server runs timers after it has read its
//!   sockets; [`event_loop`] then looks at the locks that are due. It does so at the beginning of an iteration,
//!   too;
//! - the server's callbacks (a connection closes, a key changes, slots move, the role changes) come in the middle
//!   of other work, where nothing may be written. They note work in the lock's [`record`], and [`event_loop`] has it
//!   done when the iteration ends.
//!
//! One hand-off, from FAIRLOCK.RELEASE to the waiter's reply:
//!
//! 1. `command::release` parses the command and calls [`step()`].
//! 2. The step takes what is tracked of the lock out of the [`table`], and opens the lock's keys (`OpenLock`).
//! 3. `lock::Step::release` decides. It frees the lock and settles: the head of the queue becomes the holder and
//!    leaves the queue. Each change of a key is replicated at once (`keyspace::write`). The rules emit
//!    `Event::Released` and `Event::Granted`.
//! 4. What is tracked goes back into the table, with the time when the lock is next due. Key events are raised.
//! 5. [`effects`] carries the events out: the blocked client gets its [`Outcome`], which is only noted.
//! 6. `command::release` replies to the former holder.
//! 7. The iteration of the event loop ends: [`event_loop::before_sleep`] has [`clients`] unblock the waiter's
//!    client. The server calls `clients` for the reply, which is the fencing token, and writes both replies.
//!
//! If the waiter's connection closes meanwhile, the hand-off is lost: [`clients`] says what happens then.
//!
//! What to change, to add
//!
//! - a command: see [`crate::command`];
//! - a way of waiting: a `lock::Presence`, what makes it known here (as [`clients`] does for blocked
//!   waiters), and its outcome in [`connections`];
//! - an effect: a `lock::Event`, and what is done about it in [`effects`] and counted in [`stats`].
//!
//! The map, from top to bottom. A file imports only from those below it, and `make check` holds it
//! to this list.
//!
//! What comes from the server:
//! - [`event_loop`]: what is done when an iteration begins and ends, and in which order;
//! - [`slots`]: locks whose slot is between two nodes of a cluster;
//! - [`work`]: doing the work that was noted;
//! - [`foreign`]: what other clients do to the keys and to the server;
//! - [`clients`]: blocked clients, from blocking to reply, time-out or disconnect.
//!
//! One step:
//! - [`step`](mod@step): one step on a lock, from the clocks to the next timer;
//! - [`effects`]: carrying out what was decided;
//! - [`conditions`]: the time and the rules as configured, which each step is given.
//!
//! What is remembered:
//! - [`state`]: all of it, in one struct behind one thread-local;
//! - [`connections`]: the blocked clients, and the locks that are bound to each connection;
//! - [`listening`]: for how long the server has not listened to its clients;
//! - [`stats`]: what INFO shows;
//! - [`table`]: the records of all locks, and which of them have work;
//! - [`schedule`]: when each of them is due;
//! - [`record`]: one record for each lock.

mod clients;
mod conditions;
mod connections;
mod effects;
mod event_loop;
mod foreign;
mod listening;
mod record;
mod schedule;
mod slots;
mod state;
mod stats;
mod step;
mod table;
mod work;

use crate::keyspace::Names;
use crate::keyspace::names;
use crate::lock::{Limit, Millis, Now, Presence, Waiter};
use crate::server::cluster::SlotState;
use crate::server::events::Events;
use crate::server::info::Section;
use crate::server::{Ctx, in_cluster, is_replica};

pub use clients::block;
pub use conditions::{Slice, intercepts, now, rules};
pub use connections::Outcome;
pub use effects::WakeBy;
pub use foreign::{takes_fields, transaction_runs};
pub use record::{Grant, LockId};
pub use step::{require_rest, step, step_of_script};
pub use table::Busy;

/// What the module does at the server's events.
pub const EVENTS: Events = Events {
    after_sleep: event_loop::after_sleep,
    before_sleep: event_loop::before_sleep,
    connection_closes: clients::connection_closes,
    key_changes: foreign::key_changes,
    flushed: foreign::flushed,
    swapped: foreign::swapped,
    role_changes: foreign::role_changes,
};

pub use event_loop::slots_migrate;
pub use state::start_afresh;
pub use work::{begin, hand_back_all};

/// The identity of a lock. All waiters of the lock share its name, which can be long.
#[must_use]
pub fn lock_id(db: i32, name: &[u8]) -> LockId {
    state::table(|table| table.id(db, name))
}

/// What this server has seen of an owner in a lock's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Its connection is blocked here; it tolerates this many holders.
    Blocked(Limit),
    /// It asked here, and has this many milliseconds to ask again.
    Asking(Millis, Limit),
    /// Nothing.
    Never,
}

/// What this server has seen of `owner` in a lock's queue.
#[must_use]
pub fn seen(id: &LockId, owner: &[u8], now: Now) -> Seen {
    let waiter = state::table(|table| table.waiter(id, owner));
    let left = |waiter: Waiter| now.left_until(waiter.deadline);
    match waiter.map(|waiter| (waiter.presence, waiter)) {
        Some((Presence::Blocked(_), waiter)) => Seen::Blocked(waiter.limit),
        Some((Presence::Polling | Presence::Asked, waiter)) => {
            Seen::Asking(left(waiter), waiter.limit)
        }
        _ => Seen::Never,
    }
}

/// The other lock with the same queue, if a command on this lock affects it. `a` and `{a}` share a queue key. A
/// command on `{a}` always affects `a`; one on `a` affects `{a}` only while that has waiters or a session.
#[must_use]
pub fn shares_queue_with(ctx: &Ctx, lock: &[u8]) -> Option<Vec<u8>> {
    if may_share_queue(ctx, lock) {
        names::twin(lock)
    } else {
        None
    }
}

/// Whether there may be another lock that has the same queue.
#[inline]
#[must_use]
pub fn may_share_queue(ctx: &Ctx, lock: &[u8]) -> bool {
    names::unbraced(lock).is_some()
        || state::table(|table| table.contains_braced(|| ctx.db(), lock))
}

/// Whether the lock is bound to a connection of `owner` here.
#[must_use]
pub fn is_session(id: &LockId, owner: &[u8]) -> bool {
    state::table(|table| table.is_session(id, owner))
}

/// How many holders all holders of a SHARED lock tolerate, if this server looks after them.
#[must_use]
pub fn shared_limit(id: &LockId) -> Option<Limit> {
    state::table(|table| Some(table.tracked(id)?.shared.as_ref()?.least_limit()))
}

/// Whether a lock whose key is in the keyspace is this server's to show: in a cluster, the lock may be on its way
/// from another node, which still serves it.
#[must_use]
pub fn is_served_here(ctx: &Ctx, lock: &[u8]) -> bool {
    if !in_cluster() || is_replica() {
        return true;
    }
    conditions::slot_state(ctx, &Names::of(lock), false) != SlotState::Moving
}

/// At most `most` of a database's locks with waiters or a session, each with the number of its waiters: most
/// waiters first, then by name. Begins after `behind`, if it is given.
#[must_use]
pub fn busiest(db: i32, behind: Option<&Busy>, most: usize) -> Vec<Busy> {
    state::table(|table| table.busiest(db, behind).take(most).collect())
}

/// Microseconds since this server made `owner` a holder of a lock. `None` if it did not, or if
/// the lock was changed from outside the module since.
#[must_use]
pub fn held_for(id: &LockId, owner: &[u8], now: Now) -> Option<u64> {
    if state::table(|table| table.is_shared(id)) {
        let since = state::table(|table| table.shared_since(id, owner))?;
        return Some(now.steady.saturating_sub(since));
    }
    state::stats(|stats| stats.held_for(id.db, &id.name, now))
}

/// Writes the section of INFO: counters since the module was loaded, and gauges.
pub fn write_info(section: &mut Section) {
    let gauges = stats::Gauges {
        blocked: state::blocked(|blocked| blocked.count()),
        sessions: state::sessions(|sessions| sessions.count()),
        tracked: state::table(|table| table.len()),
    };
    state::stats(|stats| stats.write(section, gauges));
}
