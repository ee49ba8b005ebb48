//! One step on a lock: all that changes a lock goes through here.
//!
//! A step reads the clocks once, opens the lock's keys together with what this server tracks of the lock, lets
//! the rules decide, has their events carried out, and sets the timer for the next lock that is due. It is the
//! same for each caller: a command, a timer, or a connection that closes.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use crate::error::Error;
use crate::keyspace::{Names, OpenLock, QueueView, Taken};
use crate::lock::{Due, Now, Owner, Presence, Rules, Step, Waiter};
use crate::server::cluster::SlotState;
use crate::server::{Ctx, announce, events, in_cluster, is_replica, string};

use super::conditions;
use super::connections::Outcome;
use super::effects::{Scene, carry_out, give_outcome};
use super::record::LockId;
use super::state::{blocked, follow_iterations, hand_offs, known_slots, table, touch, waiting};

/// Marks that a step is under way, until it is dropped.
struct Stepping;

impl Stepping {
    fn begin() -> Self {
        waiting(|waiting| waiting.stepping.set(true));
        announce::step_begins();
        Self
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
pub fn require_rest() -> Result<(), Error> {
    if waiting(|waiting| waiting.stepping.get()) {
        Err(Error::INSIDE_STEP)
    } else {
        Ok(())
    }
}

/// Refuses a lock whose twin has their queue. A queue that was found is that of the lock that a command names first, if
/// its twin is not held.
pub fn require_own_queue(ctx: &Ctx, lock: &[u8]) -> Result<(), Error> {
    let Some(twin) = table(|table| table.tracked_twin(|| ctx.db(), lock)) else {
        return Ok(());
    };
    let db = ctx.db();
    if table(|table| table.is_named(db, &twin)) || ctx.has_key(&string(&twin)) {
        return Err(Error::twin_in_use([lock, &twin]));
    }
    table(|table| table.forget(db, &twin));
    touch(&LockId::new(db, lock), QueueView::Loaded);
    Ok(())
}

/// Takes one step on a lock in the selected database: `decide` calls the rules, then their events are carried out.
///
/// # Errors
/// What `decide` returns; [`Error::WRONG_TYPE`] if a key of the lock holds something else,
/// [`Error::REPLICA`] at a replica, [`Error::INSIDE_STEP`].
pub fn step<T>(
    ctx: &Ctx,
    lock: &[u8],
    decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> Result<T, Error>,
) -> Result<T, Error> {
    step_on(ctx, &Names::of(lock), Cause::Command(None), decide)
}

/// What a step is taken for.
#[derive(Clone, Copy)]
pub enum Cause {
    /// A command, or a script, which says by which command waiters are woken if not as configured. The server has
    /// checked that its key is here.
    Command(Option<&'static CStr>),
    /// Work that was noted: how others may have touched the queue.
    Work(QueueView),
}

/// As [`step`].
pub fn step_on<T>(
    ctx: &Ctx,
    names: &Names,
    cause: Cause,
    decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut run = Run::prepare(ctx, names, cause)?;
    let end = catch_unwind(AssertUnwindSafe(|| run.decide(decide)));
    run.finish(end)
}

/// One step, from the clocks to the next timer.
struct Run<'a> {
    ctx: &'a Ctx,
    scene: Scene<'a>,
    rules: Rules,
    /// How it sees the queue.
    queue: QueueView,
    taken: Box<Taken>,
    stepping: Stepping,
}

impl<'a> Run<'a> {
    fn prepare(ctx: &'a Ctx, names: &'a Names, cause: Cause) -> Result<Self, Error> {
        require_rest()?;
        if is_replica() {
            return Err(Error::REPLICA);
        }
        let stepping = Stepping::begin();
        let db = ctx.db();
        let mut queue = view(ctx, names, db, cause);
        let mut taken = waiting(|waiting| {
            let mut taken = waiting.spare.take().unwrap_or_default();
            taken.greatest = waiting.greatest_token.get();
            taken
        });
        table(|table| table.take_into(&mut taken.tracked, db, names.name()));
        taken.tracked.is_named |= matches!(cause, Cause::Command(_));
        if taken.tracked.is_empty() && waiting(|waiting| waiting.scan.get().is_some()) {
            // It may have been there before the module.
            queue = queue.max(QueueView::Loaded);
        }
        let wake_by = match cause {
            Cause::Command(wake_by) => wake_by,
            Cause::Work(_) => None,
        };
        let now = conditions::now();
        conditions::make_up_for_stalls(now);
        Ok(Self {
            ctx,
            scene: Scene {
                names,
                db,
                now,
                wake_by,
            },
            rules: conditions::rules(),
            queue,
            taken,
            stepping,
        })
    }

    /// Opens the keys, and lets the rules decide. Also returns when the lock is due, if it is to be looked after:
    /// always where scripts run natively; else only for FAIRLOCK clients.
    fn decide<T>(
        &mut self,
        decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> Result<T, Error>,
    ) -> (Result<T, Error>, Option<Due>) {
        let (rules, now, queue) = (&self.rules, self.scene.now, self.queue);
        let is_frozen = queue == QueueView::Hidden;
        let names = self.scene.names;
        let mut state = OpenLock::open(self.ctx, names, &mut self.taken, rules, now, queue);
        if let Err(unusable) = state.prepare(queue) {
            // Nothing can be decided until that changes.
            let due = Due {
                wall: unusable.expires,
                tick: None,
            };
            return (Err(Error::WRONG_TYPE), Some(due));
        }
        let mut step = Step::new(&mut state, rules, now);
        let answer = decide(&mut step);
        let is_kept = rules.intercepts || is_frozen || step.state.tracked.is_relied_on();
        let due = is_kept.then(|| match step.next_due() {
            due if is_frozen => Due {
                tick: Some(now.tick_after(SOON)),
                ..due
            },
            due => due,
        });
        (answer, due)
    }

    /// Something is tracked: it goes back into the table.
    fn keep(&mut self, due: Due) {
        let Scene { names, db, now, .. } = self.scene;
        let tracked = &mut self.taken.tracked;
        follow_iterations();
        if !tracked.line.is_empty() {
            events::follow_scores(self.ctx);
        }
        table(|table| table.put(db, names.name(), tracked, due, now));
    }

    /// Puts back what is tracked, even after a panic, which is passed on, and carries out what has happened.
    fn finish<T>(
        mut self,
        end: thread::Result<(Result<T, Error>, Option<Due>)>,
    ) -> Result<T, Error> {
        let Scene { names, db, now, .. } = self.scene;
        let (answer, due) = match end {
            Ok((answer, due)) => (Ok(answer), due),
            Err(panic) => (Err(panic), Some(Due::default())),
        };
        waiting(|waiting| waiting.greatest_token.set(self.taken.greatest));
        match due {
            Some(due) if !self.taken.tracked.is_empty() => self.keep(due),
            _ => table(|table| table.forget(db, names.name())),
        }
        if self.queue == QueueView::Hidden {
            table(|table| table.freeze(db, names.name()));
        }
        self.ctx.raise_events();
        drop(self.stepping);
        carry_out(self.ctx, &self.scene, &mut self.taken.events);
        // Most steps are on locks of which nothing is tracked: to clear what a step leaves costs less than to make it
        // anew.
        self.taken.clear();
        waiting(|waiting| waiting.spare.set(Some(self.taken)));
        set_timer(self.ctx, now);
        answer.unwrap_or_else(|panic| {
            let lock = LockId::new(db, names.name());
            touch(&lock, QueueView::Touched);
            forget_caller(self.ctx, &lock);
            refuse_unplaced(&lock);
            resume_unwind(panic)
        })
    }
}

/// How a step sees the lock's queue: as others may have touched it. In a cluster, some of its keys may be elsewhere, or
/// may have come since the last look at it.
fn view(ctx: &Ctx, names: &Names, db: i32, cause: Cause) -> QueueView {
    let queue = match cause {
        Cause::Command(_) => {
            // The calling client lives, and can read the token of the last hand-off to it.
            hand_offs(|hand_offs| hand_offs.lives(ctx.client_id()));
            table(|table| table.take_touch(db, names.name()))
        }
        Cause::Work(queue) => queue,
    };
    if !in_cluster() {
        return queue;
    }
    conditions::follow_slots(names);
    let is_away = table(|table| table.is_away(db, names.name()));
    // What has moved keys in this iteration has touched the queue.
    let is_checked = matches!(cause, Cause::Command(_)) && !queue.is_touched() && !is_away;
    if !(is_checked && known_slots(|slots| slots.is_stable(names.slot()))) {
        let is_shared = table(|table| table.is_shared(db, names.name()));
        if conditions::slot_state(ctx, names, is_shared) != SlotState::Here {
            return QueueView::Hidden;
        }
    }
    if !table(|table| table.has_come(db, names.name())) {
        return queue;
    }
    if table(|table| table.contains(db, names.name())) {
        conditions::grant_grace();
        queue.max(QueueView::Touched)
    } else {
        conditions::slots_have_come();
        QueueView::Loaded
    }
}

/// After a panic, the caller gets an error. If its owner has joined the queue all the same, it does not wait there.
fn forget_caller(ctx: &Ctx, lock: &LockId) {
    let ticket = ctx.client_id();
    let joined = table(|table| {
        let waiters = table.tracked(lock)?.line.iter();
        let mut callers = waiters.filter(|(_, waiter)| waiter.ticket() == Some(ticket));
        callers.next().map(|(owner, _)| Owner::clone(owner))
    });
    if let Some(owner) = joined {
        let gone = |waiter: &mut Waiter| waiter.presence = Presence::Gone;
        table(|table| table.change_blocked(lock, &owner, ticket, gone));
    }
}

/// After a panic, replies an error to the blocked clients that have no place in the queue. Everything else is done by
/// then: what the step changed is kept, announced and replied; what is tracked of the lock is back in the table; and
/// before the next step the queue is repaired from the keys, as after a change from outside the module.
fn refuse_unplaced(lock: &LockId) {
    let blocked = blocked(|blocked| blocked.waiting());
    for client in blocked.into_iter().filter(|client| client.lock == *lock) {
        let waiter = table(|table| table.waiter(lock, &client.owner));
        if waiter.and_then(|waiter| waiter.ticket()) != Some(client.ticket) {
            give_outcome(client.ticket, Outcome::Refused(Error::INTERNAL));
        }
    }
}

/// Milliseconds between two looks at a lock whose keys are not all at this node.
pub const SOON: u64 = 100;

/// Makes sure that the timer rings when the first lock is due or the first client's time is up.
pub fn set_timer(ctx: &Ctx, now: Now) {
    let timeout = blocked(|blocked| blocked.next_timeout());
    table(|table| table.schedule.set_timer(ctx, now, timeout));
}
