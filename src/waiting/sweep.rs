//! Work that has to wait until no command is running: waiters whose connections have closed leave
//! the queue, locks bound to closed connections are given up, locks whose receiver was gone before
//! it could be told are taken back, and locks whose keys others have touched are looked at.
//!
//! All of this can come to notice in the middle of another client's command, and many at once. So
//! the callbacks only take note, and the locks are changed between commands: when a turn of the
//! event loop begins and when it ends. Many waiters of one lock then leave in one go. Until then
//! the rules know them as gone and never hand a lock to them.
//!
//! At the end of a turn the server makes the replies of unblocked clients, then writes them, then
//! closes what broke. A receiver can be killed, or its connection break, after its reply was made
//! and before it was written. So hand-offs are remembered to the end of their turn: if the
//! receiver's connection closes in it, the lock is taken back. (Later the client may have read its
//! token, and the lease decides.)

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::keyspace::{Stored, names};
use crate::lock::{Connection, Millis, Now, Owner, Rules, rules, session as lock_session};
use crate::server::{Ctx, events, in_cluster};

use super::table::{LockId, Table, give_back};
use super::{
    TABLE, client, discover, foreign, grant_grace, look, look_at_due_locks, session, step, step_on,
};

/// Locks that are dealt with in one go; a server that is handed a hundred thousand must answer
/// other clients in between.
const AT_ONCE: usize = 200;

#[derive(Debug, Default)]
struct Notes {
    gone: HashMap<LockId, Vec<Owner>, RandomState>,
    lost: Vec<Grant>,
    closed: Vec<(Connection, LockId)>,
    /// Locks to look at, and whether their queue or deadlines were touched.
    touched: HashMap<LockId, bool, RandomState>,
    /// Waiters of Redisson's that have asked, and for how long that is a sign of life.
    asked: HashMap<LockId, Vec<(Owner, Millis)>, RandomState>,
    /// Waiters and connections of locks that could not be changed, a key having another type.
    stuck_gone: Vec<(LockId, Owner)>,
    stuck_closed: Vec<(Connection, LockId)>,
    /// Hand-offs of this turn, by the receiver's connection.
    delivered: Vec<(Connection, Grant)>,
    /// Locks whose holders have asked again with ONCE in this turn, and their tokens.
    known: HashSet<(LockId, i64), RandomState>,
}

/// A hand-off.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The lock.
    pub lock: LockId,
    /// Its new holder.
    pub owner: Owner,
    /// The token.
    pub token: i64,
    /// The connection that the lock is bound to.
    pub session: Option<Connection>,
}

thread_local! {
    static NOTES: RefCell<Notes> = RefCell::default();
    /// Whether the hook at the end of this turn is still to come.
    static IN_TURN: Cell<bool> = const { Cell::new(false) };
    /// Whether the module has yet to see its first turn, with all data loaded.
    static FRESH: Cell<bool> = const { Cell::new(true) };
}

impl Notes {
    fn is_idle(&self) -> bool {
        self.gone.is_empty()
            && self.lost.is_empty()
            && self.closed.is_empty()
            && self.touched.is_empty()
            && self.asked.is_empty()
    }
}

/// Takes a note, and makes sure that it is looked at in this turn of the event loop or, if its
/// hook has run already, in the next one, at once.
fn note(ctx: &Ctx, take: impl FnOnce(&mut Notes)) {
    let first = NOTES.with_borrow_mut(|notes| {
        let first = notes.is_idle();
        take(notes);
        first
    });
    if first {
        before_sleeping(ctx);
    }
}

/// Makes sure that the end of a turn is still to come before the event loop waits.
pub fn before_sleeping(ctx: &Ctx) {
    if !IN_TURN.get() {
        events::hurry(ctx);
    }
}

/// Takes note of a waiter whose connection has closed.
pub fn remove_gone(ctx: &Ctx, lock: LockId, owner: Owner) {
    note(ctx, |notes| notes.gone.entry(lock).or_default().push(owner));
}

/// Takes note of a lock whose receiver was gone.
pub fn take_back(ctx: &Ctx, grant: Grant) {
    note(ctx, |notes| notes.lost.push(grant));
}

/// The holder has asked again with ONCE: it knows now, on whatever connection, that it holds the
/// lock. A hand-off with this token is not taken back if its receiver is gone.
pub fn holder_knows(lock: &LockId, token: i64) {
    NOTES.with_borrow_mut(|notes| {
        notes.known.insert((lock.clone(), token));
    });
}

/// Takes note of a lock whose keys somebody else has touched; `queue`: its queue or deadlines.
pub fn touched(ctx: &Ctx, lock: LockId, queue: bool) {
    note(ctx, |notes| {
        *notes.touched.entry(lock).or_default() |= queue;
    });
}

/// Whether somebody else has touched a lock's queue or deadlines, to be dealt with now. It is still
/// looked at when the turn ends.
#[must_use]
pub fn queue_touched(ctx: &Ctx, lock: &[u8]) -> bool {
    NOTES.with_borrow_mut(|notes| {
        if notes.touched.is_empty() {
            return false;
        }
        let queue = notes.touched.get_mut(&LockId::new(ctx.db(), lock));
        queue.is_some_and(std::mem::take)
    })
}

/// Takes note of a waiter of Redisson's that has asked: a sign of life, good for so long.
pub fn asked(ctx: &Ctx, lock: LockId, owner: Owner, alive: Millis) {
    note(ctx, |notes| {
        notes.asked.entry(lock).or_default().push((owner, alive));
    });
}

/// Takes note of a hand-off that was replied to a connection.
pub fn delivered(connection: Connection, grant: Grant) {
    NOTES.with_borrow_mut(|notes| notes.delivered.push((connection, grant)));
}

/// A connection closes. The locks that are bound to it are given up. If a lock was handed to it in
/// this turn, it never read of it; unless it closes because it said QUIT after ACQUIRE and
/// everything was written.
pub fn connection_closes(ctx: &Ctx, connection: Connection) {
    let locks = session::take(connection);
    if !locks.is_empty() {
        note(ctx, |notes| {
            let closed = locks.into_iter().map(|lock| (connection, lock));
            notes.closed.extend(closed);
        });
    }
    let grant = NOTES.with_borrow_mut(|notes| {
        let mut delivered = notes.delivered.iter();
        let index = delivered.position(|(receiver, _)| *receiver == connection)?;
        Some(notes.delivered.swap_remove(index).1)
    });
    if let Some(grant) = grant
        && !ctx.closes_after_reply(connection)
    {
        take_back(ctx, grant);
    }
}

/// Does what was noted at the end of the last turn, and what has fallen due, before any command
/// of this turn.
pub fn turn_begins(ctx: &Ctx) {
    IN_TURN.set(true);
    NOTES.with_borrow_mut(|notes| notes.delivered.clear());
    sweep(ctx);
    NOTES.with_borrow_mut(|notes| {
        if notes.lost.is_empty() && !notes.known.is_empty() {
            notes.known = HashSet::default();
        }
    });
    if TABLE.with_borrow(|table| !table.is_empty()) {
        look_at_due_locks(ctx);
    }
}

/// Does what was noted in this turn, before its replies are written.
pub fn turn_ends(ctx: &Ctx) {
    let alarm = TABLE.with_borrow(Table::alarm);
    discover::go_on(ctx);
    sweep(ctx);
    client::let_go();
    IN_TURN.set(false);
    // Before 7.2 the server has already worked out how long it may sleep.
    if TABLE.with_borrow(Table::alarm) != alarm {
        events::hurry(ctx);
    }
}

fn sweep(ctx: &Ctx) {
    if FRESH.replace(false) {
        grant_grace();
    }
    if NOTES.with_borrow(Notes::is_idle) {
        return;
    }
    if ctx.flags().replica() {
        // The keys are the master's. It learns of nobody here, and the deadlines pass.
        forget_waiters();
        let touched = NOTES.with_borrow_mut(|notes| std::mem::take(&mut notes.touched));
        foreign::follow(ctx, touched.into_keys());
        return;
    }
    if ctx.writes_paused() {
        return;
    }
    if NOTES.with_borrow(|notes| !notes.touched.is_empty()) {
        retry_stuck(ctx);
    }
    let (gone, lost) = NOTES.with_borrow_mut(|notes| {
        let Notes {
            gone, lost, known, ..
        } = notes;
        lost.retain(|grant| !known.contains(&(grant.lock.clone(), grant.token)));
        (std::mem::take(gone), std::mem::take(lost))
    });
    for (lock, owners) in gone {
        drop_gone(ctx, &lock, &owners);
    }
    for grant in lost {
        let Grant { owner, token, .. } = &grant;
        // Where a key has another type by now, there is no lock to take back.
        change(ctx, &grant.lock, |state, rules, now| {
            rules::take_back(state, owner, *token, grant.session, rules, now);
        });
    }
    give_up_closed(ctx);
    hear_who_asked(ctx);
    look_at_touched(ctx);
    if !NOTES.with_borrow(Notes::is_idle) {
        events::hurry(ctx);
    }
}

/// One step on a lock, outside commands. False if a key has another type.
fn change(ctx: &Ctx, lock: &LockId, body: impl FnOnce(&mut Stored<'_>, &Rules, Now)) -> bool {
    ctx.select_db(lock.db)
        && step(ctx, &lock.name, |state, rules, now| {
            body(state, rules, now);
            Ok(())
        })
        .is_ok()
}

fn drop_gone(ctx: &Ctx, lock: &LockId, owners: &[Owner]) {
    let dropped = change(ctx, lock, |state, rules, now| {
        rules::leave_gone(state, rules, now, owners);
    });
    if !dropped {
        NOTES.with_borrow_mut(|notes| {
            let gone = owners
                .iter()
                .map(|owner| (lock.clone(), Owner::clone(owner)));
            notes.stuck_gone.extend(gone);
        });
    }
}

/// Tries again what could not be done because a key had another type: when others touch a lock's
/// keys, and whenever a lock is due, as such a lock is every second.
pub fn retry_stuck(ctx: &Ctx) {
    let (gone, closed) = NOTES.with_borrow_mut(|notes| {
        let gone = std::mem::take(&mut notes.stuck_gone);
        (gone, std::mem::take(&mut notes.stuck_closed))
    });
    for (lock, owner) in gone {
        remove_gone(ctx, lock, owner);
    }
    if !closed.is_empty() {
        note(ctx, |notes| notes.closed.extend(closed));
    }
}

/// Some of the locks whose connections have closed are given up.
fn give_up_closed(ctx: &Ctx) {
    let batch: Vec<_> = NOTES.with_borrow_mut(|notes| {
        let rest = notes.closed.len().saturating_sub(AT_ONCE);
        let batch = notes.closed.split_off(rest);
        if rest == 0 {
            notes.closed = Vec::new();
        }
        batch
    });
    for (connection, lock) in batch {
        let given_up = change(ctx, &lock, |state, rules, now| {
            lock_session::connection_closed(state, connection, rules, now);
        });
        if !given_up {
            NOTES.with_borrow_mut(|notes| notes.stuck_closed.push((connection, lock)));
        }
    }
}

/// An intercepted script has run: what it touched is looked at before the next command, which may
/// be another script that drops whom this one has left without time. A transaction is one step.
pub fn attend(ctx: &Ctx) {
    let quiet = NOTES.with_borrow(|notes| notes.asked.is_empty() && notes.touched.is_empty());
    if quiet || ctx.flags().in_transaction() {
        return;
    }
    let db = ctx.db();
    hear_who_asked(ctx);
    look_at_touched(ctx);
    // The caller's database; there is one.
    let _ = ctx.select_db(db);
}

/// Waiters of Redisson's that have asked are alive. Their locks are looked at with that, if
/// somebody has touched them.
fn hear_who_asked(ctx: &Ctx) {
    let asked = NOTES.with_borrow_mut(|notes| std::mem::take(&mut notes.asked));
    for (lock, owners) in asked {
        let touched = NOTES.with_borrow_mut(|notes| notes.touched.remove(&lock));
        if !ctx.select_db(lock.db) {
            continue;
        }
        // A key of another type is not ours to report here.
        let _ = step_on(
            ctx,
            &lock.name,
            touched == Some(true),
            |state, rules, now| {
                for (owner, alive) in owners {
                    rules::asked(state, &owner, alive, now);
                }
                rules::look(state, rules, now);
                Ok(())
            },
        );
    }
}

/// Some of the locks whose keys others have touched are looked at; of those that turn out to have
/// no queue, which is soon seen, so many that they cannot add up however fast somebody makes them.
fn look_at_touched(ctx: &Ctx) {
    let batch: Vec<LockId> = NOTES.with_borrow(|notes| {
        let most = AT_ONCE.max(notes.touched.len() / 8);
        notes.touched.keys().take(most).cloned().collect()
    });
    let mut looked = 0;
    for lock in batch {
        let Some(queue) = NOTES.with_borrow_mut(|notes| notes.touched.remove(&lock)) else {
            continue;
        };
        let known = TABLE.with_borrow(|table| table.contains(lock.db, &lock.name));
        let found = || foreign::has_queue(ctx, &lock) && foreign::is_meant(ctx, &lock);
        if known || (found() && (!in_cluster() || names::one_slot(&lock.name))) {
            look(ctx, &lock, queue);
            looked += 1;
        }
        if looked == AT_ONCE {
            break;
        }
    }
    NOTES.with_borrow_mut(|notes| give_back(&mut notes.touched));
}

/// Two databases have changed places, and sessions go with their keys.
pub fn swap(one: i32, other: i32) {
    NOTES.with_borrow_mut(|notes| {
        for (_, lock) in notes.closed.iter_mut().chain(&mut notes.stuck_closed) {
            *lock = lock.clone().swapped(one, other);
        }
    });
}

/// Forgets who was here: the server is a replica now.
pub fn forget_waiters() {
    NOTES.with_borrow_mut(|notes| {
        let touched = std::mem::take(&mut notes.touched);
        *notes = Notes {
            touched,
            ..Notes::default()
        };
    });
}

/// Forgets all.
pub fn clear() {
    NOTES.set(Notes::default());
    FRESH.set(true);
}
