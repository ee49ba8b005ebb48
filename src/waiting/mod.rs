//! Blocked clients, timers and hand-offs: carries out what the rules of the lock decide.
//!
//! Everything that changes a lock goes through [`step()`]. These call it:
//!
//! - a command takes a step at once: it parses, checks permissions, and calls [`step()`] with the rule to apply;
//! - an intercepted script does the same through [`step_on`];
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
//! 5. [`effects`] carries the events out: the blocked client gets its outcome, which is only noted.
//! 6. `command::release` replies to the former holder.
//! 7. The iteration of the event loop ends: [`event_loop::before_sleep`] has [`clients`] unblock the waiter's
//!    client. The server calls `clients` for the reply, which is the fencing token, and writes both replies.
//!
//! If the waiter's connection closes before that, the hand-off is lost: [`clients`] says what happens then.
//!
//! What to change, to add
//!
//! - a command: see [`crate::command`];
//! - a way of waiting: a `lock::Presence`, what makes it known here (as [`clients`] does for blocked
//!   waiters), and its outcome in [`connections`];
//! - an effect: a `lock::Event`, and what is done about it in [`effects`] and counted in [`crate::stats`].
//!
//! The map, from top to bottom: a file imports only from those below it (`make check`).
//!
//! What comes from the server:
//! - [`event_loop`]: what is done when an iteration begins and ends, and in which order;
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
//! - [`noted`]: which of all locks have work;
//! - [`table`]: the records of all locks;
//! - [`schedule`]: when each of them is due;
//! - [`slots`]: in a cluster, which slots are not being moved;
//! - [`record`]: one record for each lock.

mod clients;
mod conditions;
mod connections;
mod effects;
mod event_loop;
mod foreign;
mod noted;
mod record;
mod schedule;
mod slots;
mod state;
mod step;
mod table;
mod work;

use std::rc::Rc;

use crate::keyspace::Tracked;
use crate::lock::Now;
use crate::server::events::Events;
use crate::server::info::Section;

pub use clients::block;
pub use conditions::{now, permissions_change, slot_is_named};
pub use effects::WAKE_UP;
pub use foreign::has_queue;
pub use record::LockId;
pub use step::{Cause, require_own_queue, require_rest, step, step_on};

/// What the module does at the server's events.
pub const EVENTS: Events = Events {
    after_sleep: event_loop::after_sleep,
    before_sleep: event_loop::before_sleep,
    timer_rings: event_loop::timer_rings,
    connection_closes: clients::connection_closes,
    key_changes: foreign::key_changes,
    flushed: foreign::flushed,
    swapped: clients::swapped,
    role_changes: work::role_changes,
    slots_move: work::slots_move,
};

pub use work::look_for_queues;

/// Whether the module has seen the end of the iteration in which it was loaded.
pub fn has_begun() -> bool {
    state::waiting(|waiting| waiting.has_begun.get())
}

/// Reads what this server knows of a lock beyond its keys. `None` if that is nothing.
pub fn known<T>(id: &LockId, read: impl FnOnce(&Tracked) -> Option<T>) -> Option<T> {
    state::table(|table| read(table.tracked(id)?))
}

/// Whether the lock is bound to a connection of `owner` here.
pub fn is_session(id: &LockId, owner: &[u8]) -> bool {
    known(id, |tracked| tracked.session_of(owner).map(drop)).is_some()
}

/// At most `most` of a database's locks with waiters, a session or shared holders, each with a number that grows: those
/// with numbers behind `last`, from 0.
pub fn locks_behind(db: i32, last: u64, most: usize) -> Vec<(u64, Rc<[u8]>)> {
    state::table(|table| table.behind(db, last, most))
}

/// Microseconds since this server made `owner` a holder of a lock. `None` if it did not, or if
/// the lock was changed from outside the module since.
pub fn held_for(id: &LockId, owner: &[u8], now: Now) -> Option<u64> {
    if state::table(|table| table.is_shared(id.db, &id.name)) {
        let since = known(id, |tracked| tracked.shared.as_ref()?.get(owner)?.since)?;
        return Some(now.steady.saturating_sub(since));
    }
    state::stats(|stats| stats.held_for(id.db, &id.name, now))
}

/// Writes the section of INFO: counters since the module was loaded, and gauges.
pub fn write_info(section: &mut Section) {
    let gauges = [
        state::blocked(|blocked| blocked.count()),
        state::sessions(|sessions| sessions.count()),
        state::table(|table| table.len()),
    ];
    state::stats(|stats| stats.write(section, gauges));
}
