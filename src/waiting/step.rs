//! One step on a lock: all that changes a lock goes through here.
//!
//! A step reads the clocks once, opens the lock's keys together with what this server tracks of the lock, lets
//! the rules decide, has their events carried out, and sets the timer for the next lock that is due. It is the
//! same for each caller: a command, a timer, or a connection that closes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use crate::error::Error;
use crate::keyspace::tracked::Unusable;
use crate::keyspace::{Names, OpenLock, QueueView, Taken, Tracked};
use crate::lock::{Due, Now, Rules, Step};
use crate::server::cluster::SlotState;
use crate::server::{Ctx, announce, events, in_cluster, is_replica};

use super::conditions;
use super::connections::Outcome;
use super::effects::{Scene, WakeUp, carry_out, give_outcome};
use super::record::{LockId, Place};
use super::state::{blocked, hand_offs, hear_iterations, table, waiting};
use super::table::Table;

/// Fallback interval in milliseconds, for a lock of which no deadline is known: it has waiters and no lease, or
/// one of its keys has another type. Key events normally come first.
const RECHECK: u64 = 1000;

/// Marks that a step is under way, until it is dropped.
struct Stepping;

impl Stepping {
    /// `None` on a replica, where no step may be taken.
    fn begin() -> Option<Self> {
        if is_replica() {
            return None;
        }
        waiting(|waiting| waiting.stepping.set(true));
        announce::step_begins();
        Some(Self)
    }
}

impl Drop for Stepping {
    fn drop(&mut self) {
        waiting(|waiting| waiting.stepping.set(false));
        announce::step_ends();
    }
}

/// Refuses a command that another module calls from a key event of a step. What is tracked of the lock is out of
/// the table during a step, so a second step, or a read, would see incomplete state.
///
/// # Errors
/// [`Error::InsideStep`].
pub fn require_rest() -> Result<(), Error> {
    if waiting(|waiting| waiting.stepping.get()) {
        Err(Error::InsideStep)
    } else {
        Ok(())
    }
}

/// Refuses a lock whose twin has their queue.
///
/// # Errors
/// [`Error::TwinInUse`].
pub fn require_own_queue(ctx: &Ctx, lock: &[u8]) -> Result<(), Error> {
    let twin = table(|table| table.tracked_twin(|| ctx.db(), lock));
    twin.map_or(Ok(()), |twin| {
        Err(Error::TwinInUse(Box::new([lock.into(), twin.into()])))
    })
}

/// Takes one step on a lock in the selected database: `decide` calls the rules, then their events are carried out.
///
/// # Errors
/// What `decide` returns; [`Error::WrongType`] if a key of the lock holds something else,
/// [`Error::Replica`] at a replica, [`Error::InsideStep`].
pub fn step<T>(
    ctx: &Ctx,
    lock: &[u8],
    decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> Result<T, Error>,
) -> Result<T, Error> {
    caller_lives(ctx);
    let queue = queue_touched(ctx, lock);
    step_on(ctx, &Names::of(lock), (queue, true), None, decide)
}

/// Takes the step that a script has become. `wake_up` says how the head is woken, if not as configured.
///
/// # Errors
/// As [`step`].
pub fn step_of_script<T>(
    ctx: &Ctx,
    names: &Names,
    wake_up: Option<WakeUp<'_>>,
    decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> T,
) -> Result<T, Error> {
    require_own_queue(ctx, names.name())?;
    caller_lives(ctx);
    let queue = queue_touched(ctx, names.name());
    step_on(ctx, names, (queue, true), wake_up, |step| {
        // Without its queue a lock is left to the script.
        step.state.require_queue()?;
        Ok(decide(step))
    })
}

/// The calling client lives, and can read the token of the last hand-off to it.
fn caller_lives(ctx: &Ctx) {
    if hand_offs(|hand_offs| hand_offs.is_any_replied()) {
        hand_offs(|hand_offs| hand_offs.lives(ctx.client_id()));
    }
}

/// How a lock's queue was touched from outside the module. The caller's step repairs it.
fn queue_touched(ctx: &Ctx, lock: &[u8]) -> QueueView {
    table(|table| table.take_touch(|| ctx.db(), lock))
}

/// As [`step`]. `queue` says how others may have touched the queue, `is_asked` whether it is the step of a command;
/// `wake_up` says how waiters are woken, if not as configured.
pub fn step_on<T>(
    ctx: &Ctx,
    names: &Names,
    (queue, is_asked): (QueueView, bool),
    wake_up: Option<WakeUp<'_>>,
    decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> Result<T, Error>,
) -> Result<T, Error> {
    require_rest()?;
    let Some(stepping) = Stepping::begin() else {
        return Err(Error::Replica);
    };
    let lock = names.name();
    conditions::follow_slots(ctx, names);
    let db = ctx.db();
    let queue = view(ctx, names, db, (queue, is_asked));
    let is_frozen = queue == QueueView::Hidden;
    let (rules, now) = (conditions::rules(), conditions::now());
    let mut taken = begin();
    table(|table| table.take_into(&mut taken.tracked, db, lock));
    let queue = if taken.tracked.cut_short {
        queue.max(QueueView::Touched)
    } else {
        queue
    };
    let end = catch_unwind(AssertUnwindSafe(|| {
        decide_on(ctx, names, &mut taken, (&rules, now), queue, decide)
    }));
    waiting(|waiting| waiting.greatest_token.set(taken.greatest));
    let decided = put_back(ctx, (db, lock), &mut taken.tracked, end, now);
    if is_frozen && in_cluster() {
        // It is looked at soon.
        if table(|table| table.place(db, lock)) == Place::Here {
            table(|table| table.set_place(&LockId::new(db, lock), Place::Frozen));
        }
    }
    ctx.raise_events();
    drop(stepping);
    let scene = Scene {
        names,
        db,
        now,
        wake_up,
    };
    carry_out(ctx, &scene, &mut taken.events);
    keep_for_next(taken);
    set_timer(ctx, now);
    decided.unwrap_or_else(|panic| {
        refuse_unplaced(&LockId::new(db, lock));
        resume_unwind(panic)
    })
}

/// How a step sees the lock's queue. In a cluster, some of its keys may be elsewhere, or may have come since the last
/// look at it.
fn view(ctx: &Ctx, names: &Names, db: i32, (queue, is_asked): (QueueView, bool)) -> QueueView {
    if !in_cluster() {
        return queue;
    }
    let place = table(|table| table.place(db, names.name()));
    // What has moved keys in this iteration has touched the queue.
    let is_asked = is_asked && !queue.is_touched() && place == Place::Here;
    if !(is_asked && conditions::is_stable(names)) {
        let is_shared = |table: &mut Table| {
            let record = table.record(db, names.name());
            record.is_some_and(|record| record.tracked.shared.is_some())
        };
        if conditions::slot_state(ctx, names, table(is_shared)) != SlotState::Here {
            return QueueView::Hidden;
        }
    }
    match place {
        Place::Here => queue,
        Place::Frozen => {
            conditions::grant_grace();
            queue.max(QueueView::Touched)
        }
        Place::Arriving => {
            conditions::slots_have_come();
            table(|table| table.set_place(&LockId::new(db, names.name()), Place::Here));
            QueueView::Loaded
        }
    }
}

/// What a step may change beyond the keys, before it is known what is tracked of the lock.
fn begin() -> Box<Taken> {
    waiting(|waiting| {
        let mut taken = waiting.spare.take().unwrap_or_default();
        taken.greatest = waiting.greatest_token.get();
        taken.may_be_shared = waiting.is_scanning.get();
        taken
    })
}

/// Most steps are on locks of which nothing is tracked: to clear what a step leaves costs less than to make it anew.
fn keep_for_next(mut taken: Box<Taken>) {
    taken.clear();
    waiting(|waiting| waiting.spare.set(Some(taken)));
}

/// The result of the part of a step in which a panic may occur.
type End<T> = thread::Result<Result<Decided<T>, Unusable>>;

/// Puts what is tracked of the lock back into the table, even after a panic, which is passed on.
fn put_back<T>(
    ctx: &Ctx,
    (db, lock): (i32, &[u8]),
    tracked: &mut Tracked,
    end: End<T>,
    now: Now,
) -> thread::Result<Result<T, Error>> {
    match end {
        Ok(Ok(step)) => {
            if step.is_ours {
                if !tracked.line.is_empty() {
                    events::hear_scores(ctx);
                }
                keep(db, lock, tracked, step.due, now);
            } else {
                table(|table| table.forget(db, lock));
            }
            Ok(step.answer)
        }
        Ok(Err(unusable)) => {
            // A key of the lock has another type: nothing can be decided until that changes.
            let due = Due {
                wall: unusable.expires,
                ..soon(now)
            };
            keep(db, lock, tracked, due, now);
            Ok(Err(Error::WrongType))
        }
        Err(panic) => {
            tracked.cut_short = true;
            keep(db, lock, tracked, soon(now), now);
            Err(panic)
        }
    }
}

/// After a panic, replies an error to the blocked clients that have no place in the queue. (A client that was to be
/// blocked after the step gets one as well. If its owner has a place, the hand-off to it is lost at once.) Everything
/// else is done by then: what the step changed is kept, announced and replied; what is tracked of the lock is back in
/// the table; and before the next step the queue is repaired from the keys, as after a change from outside the
/// module.
fn refuse_unplaced(lock: &LockId) {
    let blocked = blocked(|blocked| blocked.waiting());
    for client in blocked.into_iter().filter(|client| client.lock == *lock) {
        let waiter = table(|table| table.waiter(lock, &client.owner));
        if waiter.and_then(|waiter| waiter.ticket()) != Some(client.ticket) {
            give_outcome(client.ticket, Outcome::Refused(Error::Internal));
        }
    }
}

/// When a lock is looked at again if no event comes earlier.
fn soon(now: Now) -> Due {
    Due {
        wall: None,
        tick: Some(now.tick_after(RECHECK)),
    }
}

/// The result of a step, without its effects on other clients.
struct Decided<T> {
    answer: Result<T, Error>,
    due: Due,
    /// It is to be looked after: always where scripts run natively; else only for FAIRLOCK clients.
    is_ours: bool,
}

/// Opens the keys, and lets the rules decide.
fn decide_on<T>(
    ctx: &Ctx,
    names: &Names,
    taken: &mut Taken,
    (rules, now): (&Rules, Now),
    queue: QueueView,
    decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> Result<T, Error>,
) -> Result<Decided<T>, Unusable> {
    let is_frozen = queue == QueueView::Hidden;
    let may_be_shared = taken.may_be_shared;
    let mut state = OpenLock::open(ctx, names, taken, rules, now, queue);
    state.prepare(queue, may_be_shared)?;
    state.tracked.cut_short &= is_frozen;
    let mut step = Step::new(&mut state, rules, now);
    let answer = decide(&mut step);
    let due = step.next_due();
    Ok(Decided {
        answer,
        due,
        is_ours: rules.intercepts || is_frozen || step.state.tracked.is_relied_on(),
    })
}

/// The step is over: what is tracked goes back into the table.
fn keep(db: i32, lock: &[u8], tracked: &mut Tracked, due: Due, now: Now) {
    if !tracked.is_empty() {
        hear_iterations();
    }
    let otherwise = now.tick_after(RECHECK);
    table(|table| table.put(db, lock, tracked, due, otherwise));
}

/// Milliseconds between two looks at the locks whose slots are between two nodes of a cluster.
pub const SLOTS_ON_THE_MOVE: u64 = 100;

/// Makes sure that the timer rings when the first lock is due or the first client's time is up, and soon while locks
/// are on the move.
pub fn set_timer(ctx: &Ctx, now: Now) {
    let timeout = blocked(|blocked| blocked.next_timeout());
    table(|table| {
        let soon = now.tick_after(SLOTS_ON_THE_MOVE);
        let soon = table.is_any_on_the_move().then_some(soon);
        let first = timeout.into_iter().chain(soon).min();
        table.schedule.set_timer(ctx, now, first);
    });
}

/// Looks at a lock outside commands. `queue` says how others may have touched its queue.
pub fn look(ctx: &Ctx, id: &LockId, queue: QueueView) {
    if !ctx.select_db(id.db) {
        return;
    }
    // For a key of another type there is no caller to tell; the lock is looked at again later.
    let _ = step_on(ctx, &Names::of(&id.name), (queue, false), None, |step| {
        step.look();
        Ok(())
    });
}
