//! Who is blocked on what, and carrying out what the rules decide.
//!
//! Everything that changes a lock goes through [`step`]: it reads the clock once, opens the
//! lock's keys together with what this server knows of its queue, lets the rules decide, carries
//! out the events (replies, wake-ups) and asks the timer for the next due time. Commands, timers
//! and connections that close are all callers of the same function.
//!
//! - [`table`]: what is known of each lock with waiters, and when it is due;
//! - [`client`]: the blocked clients, from blocking to the one way in which each of them ends;
//! - [`sweep`]: work that has to wait until no command is running.

pub mod client;
pub mod sweep;
mod table;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::config;
use crate::error::Error;
use crate::keyspace::{Names, Stored};
use crate::lock::{Event, Now, Rules, turn};
use crate::server::events::Events;
use crate::server::{Ctx, Str, clock, string};

use client::Outcome;
pub use table::LockId;
use table::Table;

thread_local! {
    /// Borrowed only for moments: never across a call that could come back to this module.
    static TABLE: RefCell<Table> = RefCell::new(Table::default());
    static GREATEST_TOKEN: Cell<i64> = const { Cell::new(0) };
}

/// What the module does at the server's events.
pub const EVENTS: Events = Events {
    turn_begins: sweep::turn_begins,
    turn_ends: sweep::sweep,
    connection_closes: sweep::connection_closes,
};

/// Milliseconds after which a lock is looked at again when there is no telling when it will be
/// free: it has waiters and no lease, or one of its keys has another type.
const RECHECK: u64 = 1000;

/// The rules as configured now.
#[must_use]
pub fn rules() -> Rules {
    Rules {
        turn: config::TURN.get(),
        patience: config::PATIENCE.get(),
        token_ttl: config::TOKEN_TTL.get(),
        max_waiters: usize::try_from(config::MAX_WAITERS.get()).unwrap_or(usize::MAX),
    }
}

/// The server's clock.
#[must_use]
pub fn now() -> Now {
    Now {
        micros: clock::now_micros(),
    }
}

/// Everything a step of the rules needs.
#[derive(Debug)]
pub struct Step<'s, 'c> {
    /// The lock.
    pub state: &'s mut Stored<'c>,
    /// The rules as configured.
    pub rules: Rules,
    /// The time of the step.
    pub now: Now,
    /// What happens in it.
    pub events: Vec<Event>,
}

/// Lets the rules decide one step on a lock, in the selected database, and carries it out.
///
/// # Errors
/// What `decide` returns, or [`Error::WrongType`] if a key of the lock holds something else.
pub fn step<T>(
    ctx: &Ctx,
    lock: Str,
    decide: impl FnOnce(&mut Step<'_, '_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let id = LockId::new(ctx.db(), lock.as_slice());
    let (rules, now) = (rules(), now());
    let known = TABLE.with_borrow_mut(|table| table.take(&id));
    let names = Names::of(lock);
    let mut state = match Stored::open(ctx, names, known, GREATEST_TOKEN.get(), &rules, now) {
        Ok(state) => state,
        Err(known) => {
            let due = now.after(RECHECK);
            TABLE.with_borrow_mut(|table| table.put(id, *known, due));
            set_timer(ctx, now);
            return Err(Error::WrongType);
        }
    };
    let mut step = Step {
        state: &mut state,
        rules,
        now,
        events: Vec::new(),
    };
    let decided = decide(&mut step);
    let events = step.events;
    GREATEST_TOKEN.set(state.greatest);
    carry_out(ctx, &state.names, &id, events);
    if !state.known.line.is_empty() {
        let due = turn::next_due(&mut state).unwrap_or_else(|| now.after(RECHECK));
        TABLE.with_borrow_mut(|table| table.put(id, state.known, due));
    }
    set_timer(ctx, now);
    decided
}

fn carry_out(ctx: &Ctx, names: &Names, id: &LockId, events: Vec<Event>) {
    for event in events {
        match event {
            Event::Granted {
                ticket,
                owner,
                token,
            } => {
                let grant = Outcome::Granted {
                    lock: id.clone(),
                    owner,
                    token,
                };
                client::unblock(ctx, ticket, grant);
            }
            Event::Refused { ticket, refusal } => {
                client::unblock(ctx, ticket, Outcome::Refused(refusal.into()));
            }
            Event::TakenOver { ticket } => {
                client::unblock(ctx, ticket, Outcome::Refused(Error::TakenOver));
            }
            Event::Cancelled { ticket } => client::unblock(ctx, ticket, Outcome::Nil),
            Event::WakeUp { owner } => ctx.publish(&names.channel(&owner), &string(b"0")),
            Event::Reaped { .. } => (),
        }
    }
}

/// Makes sure that the timer rings when the first lock is due.
fn set_timer(ctx: &Ctx, now: Now) {
    TABLE.with_borrow_mut(|table| table.set_timer(ctx, now.millis()));
}

/// The locks with waiters that are due are looked at: their lease or a turn has ended.
pub(crate) fn look_at_due_locks(ctx: &Ctx) {
    let now = now();
    let due = TABLE.with_borrow_mut(|table| table.due(now.millis()));
    if !due.is_empty() && (ctx.flags().replica() || ctx.writes_paused()) {
        // A replica never grants; a paused server must not write.
        let later = now.after(RECHECK.min(100));
        TABLE.with_borrow_mut(|table| due.into_iter().for_each(|id| table.schedule(id, later)));
    } else {
        for id in due {
            settle(ctx, &id);
        }
    }
    set_timer(ctx, now);
}

/// Lets the head's turn start if the lock is free. Used outside commands.
fn settle(ctx: &Ctx, id: &LockId) {
    if !ctx.select_db(id.db) {
        return;
    }
    // A key of another type is not ours to report here; the lock is looked at again later.
    let _ = step(ctx, string(&id.name), |step| {
        turn::settle(step.state, &step.rules, step.now, None, &mut step.events);
        Ok(())
    });
}

/// Whether `owner` is blocked on this lock here.
#[must_use]
pub fn is_blocked(id: &LockId, owner: &[u8]) -> bool {
    TABLE.with_borrow(|table| table.is_blocked(id, owner))
}

impl LockId {
    /// The lock of this name in this database.
    #[must_use]
    pub fn new(db: i32, name: &[u8]) -> Self {
        Self {
            db,
            name: Rc::from(name),
        }
    }
}
