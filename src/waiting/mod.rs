//! Who is blocked on what, and carrying out what the rules decide.
//!
//! Everything that changes a lock goes through [`step`]: it reads the clocks once, opens the
//! lock's keys together with what this server knows of its queue, lets the rules decide, carries
//! out the events (replies, wake-ups) and asks the timer for the next due time. Commands, timers,
//! connections that close and keys that others change are all callers of the same function.
//!
//! - [`table`]: what is known of each lock with waiters or a session, and when it is due;
//! - [`client`]: the blocked clients, from blocking to the one way in which each of them ends;
//! - [`foreign`]: what others do to the keys and to the server;
//! - [`moving`]: locks whose slot is between two nodes of a cluster;
//! - [`session`]: which connection has which locks bound to it;
//! - [`sweep`]: work that has to wait until no command is running;
//! - [`stats`]: what INFO shows.

pub mod client;
mod discover;
pub mod foreign;
mod moving;
pub mod redisson;
pub mod session;
pub mod stats;
pub mod sweep;
mod table;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::config::{self, Pubsub};
use crate::error::Error;
use crate::keyspace::{Names, Queue, Stored, names};
use crate::lock::{Event, Now, Rules, Tick, rules, turn};
use crate::server::cluster::Place;
use crate::server::events::Events;
use crate::server::{Ctx, Str, clock, in_cluster, string};

use client::Outcome;
use sweep::Grant;
pub use table::LockId;
use table::Table;

thread_local! {
    /// Borrowed only for moments: never across a call that could come back to this module.
    static TABLE: RefCell<Table> = RefCell::new(Table::default());
    static GREATEST_TOKEN: Cell<i64> = const { Cell::new(0) };
    static GRACE: Cell<Tick> = const { Cell::new(0) };
    /// Whether a step is under way: the key events are its own then.
    static STEPPING: Cell<bool> = const { Cell::new(false) };
}

/// What the module does at the server's events.
pub const EVENTS: Events = Events {
    turn_begins: sweep::turn_begins,
    turn_ends: sweep::turn_ends,
    connection_closes: sweep::connection_closes,
    key_changes: foreign::key_changes,
    flushed: foreign::flushed,
    swapped: foreign::swapped,
    role_changes: foreign::role_changes,
};

/// Milliseconds after which a lock is looked at again when there is no telling when it will be
/// free: it has waiters and no lease, or one of its keys has another type. Key events tell
/// earlier; this is for what comes without one.
const RECHECK: u64 = 1000;

/// The rules as configured now.
#[must_use]
pub fn rules() -> Rules {
    Rules {
        turn: config::TURN.get(),
        patience: config::PATIENCE.get(),
        token_ttl: config::TOKEN_TTL.get(),
        max_waiters: usize::try_from(config::MAX_WAITERS.get()).unwrap_or(usize::MAX),
        grace: GRACE.get(),
        intercepts: config::intercept_eval(),
    }
}

/// Waiters that are found in the keys count as alive for one turn from now.
fn grant_grace() {
    GRACE.set(now().tick_after(config::TURN.get()));
}

/// The server's clocks.
#[must_use]
pub fn now() -> Now {
    Now {
        micros: clock::wall_micros(),
        steady: clock::steady_micros(),
    }
}

/// Marks the time of a step, however it ends.
struct Stepping;

impl Stepping {
    fn begin() -> Self {
        STEPPING.set(true);
        Self
    }
}

impl Drop for Stepping {
    fn drop(&mut self) {
        STEPPING.set(false);
    }
}

/// Lets the rules decide one step on a lock, in the selected database, and carries it out.
///
/// # Errors
/// What `decide` returns, or [`Error::WrongType`] if a key of the lock holds something else.
pub fn step<T>(
    ctx: &Ctx,
    lock: &[u8],
    decide: impl FnOnce(&mut Stored<'_>, &Rules, Now) -> Result<T, Error>,
) -> Result<T, Error> {
    let touched = sweep::queue_touched(ctx, lock);
    step_on(ctx, lock, touched, decide)
}

/// As [`step`]; `touched`: somebody else has touched queue or deadlines.
fn step_on<T>(
    ctx: &Ctx,
    lock: &[u8],
    touched: bool,
    decide: impl FnOnce(&mut Stored<'_>, &Rules, Now) -> Result<T, Error>,
) -> Result<T, Error> {
    let stepping = Stepping::begin();
    let (rules, now, db) = (rules(), now(), ctx.db());
    let otherwise = now.tick_after(RECHECK);
    let known = TABLE.with_borrow_mut(|table| table.take(db, lock));
    let names = Names::of(lock);
    let frozen = moving::place_of(ctx, &names) != Place::Here;
    let queue = match (frozen, touched) {
        (true, _) => Queue::Hidden,
        (false, true) => Queue::Touched,
        (false, false) => Queue::AsLeft,
    };
    let greatest = GREATEST_TOKEN.get();
    let mut state = match Stored::open(ctx, names, known, greatest, &rules, now, queue) {
        Ok(state) => state,
        Err(unusable) => {
            let due = turn::Due {
                wall: unusable.expires,
                tick: Some(otherwise),
            };
            TABLE.with_borrow_mut(|table| {
                table.put(db, lock, unusable.known, due, now, otherwise);
            });
            set_timer(ctx, now);
            return Err(Error::WrongType);
        }
    };
    let decided = decide(&mut state, &rules, now);
    let due = turn::next_due(&mut state, now);
    let (names, known, mut events, greatest) = state.close();
    GREATEST_TOKEN.set(greatest);
    drop(stepping);

    TABLE.with_borrow_mut(|table| table.put(db, lock, known, due, now, otherwise));
    if frozen {
        moving::freeze(ctx, LockId::new(db, lock));
    } else {
        moving::keep_watch(ctx);
    }
    carry_out(ctx, &names, db, now, &mut events);
    Stored::give_back(events);
    set_timer(ctx, now);
    decided
}

/// Makes sure that the timer rings when the first lock is due or the first client's time is up.
fn set_timer(ctx: &Ctx, now: Now) {
    let timeout = client::next_timeout();
    TABLE.with_borrow_mut(|table| table.set_timer(ctx, now, timeout));
}

fn carry_out(ctx: &Ctx, names: &Names, db: i32, now: Now, events: &mut Vec<Event>) {
    let name = names.lock.as_slice();
    let id = || TABLE.with_borrow(|table| table.id(db, name));
    for event in events.drain(..) {
        stats::count(&event, db, name, now);
        match event {
            Event::Granted {
                ticket,
                owner,
                token,
                session,
                ..
            } => {
                let may_have_it = client::may_still_acquire(ticket, names, &owner);
                let grant = Grant {
                    lock: id(),
                    owner,
                    token,
                    session,
                };
                if may_have_it {
                    client::unblock(ctx, ticket, Outcome::Granted(grant));
                } else {
                    client::unblock(ctx, ticket, Outcome::Refused(Error::PermissionGone));
                    sweep::take_back(ctx, grant);
                }
            }
            Event::HeldAgain { token, once: true } => {
                sweep::holder_knows(&id(), token);
            }
            Event::Refused { ticket, refusal } => {
                client::unblock(ctx, ticket, Outcome::Refused(refusal.into()));
            }
            Event::TakenOver { ticket } => {
                client::unblock(ctx, ticket, Outcome::Refused(Error::TakenOver));
            }
            Event::Cancelled {
                ticket: Some(ticket),
            } => client::unblock(ctx, ticket, Outcome::Nil),
            Event::WakeUp { owner } => wake_up(ctx, &names.channel(&owner)),
            Event::Bound { connection } => session::bound(connection, &id()),
            Event::Unbound { connection } => session::unbound(connection, &id()),
            Event::Cancelled { ticket: None }
            | Event::Acquired { .. }
            | Event::HeldAgain { .. }
            | Event::Released
            | Event::Enqueued
            | Event::Left
            | Event::Reaped { .. } => (),
        }
    }
}

/// Sends a waiter its wake-up, in the way that its client listens.
fn wake_up(ctx: &Ctx, channel: &Str) {
    let message = string(b"0");
    let (plain, sharded) = match config::pubsub() {
        Pubsub::Auto => (!in_cluster(), in_cluster()),
        Pubsub::Publish => (true, false),
        Pubsub::Spublish => (false, true),
        Pubsub::Both => (true, true),
    };
    if plain {
        ctx.publish(c"PUBLISH", channel, &message);
    }
    if sharded {
        ctx.publish(c"SPUBLISH", channel, &message);
    }
}

/// The locks with waiters or sessions that are due are looked at: a lease or a turn has ended, or
/// a lease is to be renewed.
pub(crate) fn look_at_due_locks(ctx: &Ctx) {
    let now = now();
    let nothing_due = client::next_timeout().is_none_or(|until| until > now.tick())
        && TABLE.with_borrow(|table| table.is_armed(now) && !table.is_due(now));
    if nothing_due {
        return;
    }
    client::time_out_due(ctx, now);
    let due = TABLE.with_borrow_mut(|table| table.due(now));
    if !due.is_empty() {
        sweep::retry_stuck(ctx);
    }
    if !due.is_empty() && ctx.writes_paused() {
        // A paused server must not write.
        let later = now.tick_after(100);
        TABLE.with_borrow_mut(|table| due.iter().for_each(|id| table.postpone(id, later)));
    } else {
        for id in due {
            look(ctx, &id, false);
        }
    }
    set_timer(ctx, now);
}

/// Looks at a lock outside commands. `touched`: somebody else has touched its queue or deadlines.
fn look(ctx: &Ctx, id: &LockId, touched: bool) {
    if !ctx.select_db(id.db) {
        return;
    }
    // A key of another type is not ours to report here; the lock is looked at again later.
    let _ = step_on(ctx, &id.name, touched, |state, rules, now| {
        rules::look(state, rules, now);
        Ok(())
    });
}

/// The identity of a lock. All that wait for it share its name, which can be long.
#[must_use]
pub fn lock_id(db: i32, name: &[u8]) -> LockId {
    TABLE.with_borrow(|table| table.id(db, name))
}

/// Whether `owner` is blocked on this lock here.
#[must_use]
pub fn is_blocked(id: &LockId, owner: &[u8]) -> bool {
    TABLE.with_borrow(|table| table.is_blocked(id, owner))
}

/// The other lock that has the same queue as this one, if using the one is using the other: the
/// queue is that of the lock without braces, unless that with braces has waiters or a session.
#[must_use]
pub fn shares_queue_with(ctx: &Ctx, lock: &[u8]) -> Option<Vec<u8>> {
    let shares = names::unbraced(lock).is_some()
        || TABLE.with_borrow(|table| table.contains_braced(|| ctx.db(), lock));
    if shares { names::twin(lock) } else { None }
}

/// Whether the lock is bound to a connection of `owner` here.
#[must_use]
pub fn is_session(id: &LockId, owner: &[u8]) -> bool {
    TABLE.with_borrow(|table| table.is_session(id, owner))
}

/// The names of a database's locks with waiters or a session: most waiters first, and in the order
/// of their names where they have as many.
#[must_use]
pub fn busiest(db: i32) -> Vec<Rc<[u8]>> {
    let mut locks: Vec<_> = TABLE.with_borrow(|table| table.waiters(db).collect());
    locks.sort_unstable_by(|(name, waiters), (other, others)| {
        others.cmp(waiters).then_with(|| name.cmp(other))
    });
    locks.into_iter().map(|(name, _)| name).collect()
}

/// Number of locks with waiters or a session.
fn tracked() -> usize {
    TABLE.with_borrow(Table::len)
}

/// Forgets what an earlier load of the module may have left.
pub fn start_afresh(ctx: &Ctx) {
    TABLE.with_borrow_mut(|table| table.clear(ctx));
    session::clear();
    sweep::clear();
    stats::clear();
    foreign::clear();
    moving::clear();
    discover::start(ctx);
}
