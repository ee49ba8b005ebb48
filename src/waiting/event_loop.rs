//! The order of things in an iteration of the event loop: what is done when it begins, when it
//! ends, and when the timer rings in between.
//!
//! Callbacks only take notes (see [`deferred`](super::deferred)); what was noted is done here,
//! between commands, at the first end of an iteration that comes.

use crate::keyspace::Queue;
use crate::lock::{Now, Tick};
use crate::server::timer::Alarm;
use crate::server::{Ctx, events};

use super::clients;
use super::deferred::Notes;
use super::discovery;
use super::foreign;
use super::given;
use super::id::LockId;
use super::noted;
use super::schedule::Ring;
use super::slice::Slice;
use super::state::{blocked, note, notes, table, waiting};
use super::step::{look, set_timer};
use super::touched;
use super::watch;

/// Milliseconds after which a lock that is due is looked at again while writes are paused.
const PAUSE: u64 = 100;
/// Milliseconds that the server sleeps at most, with `hz` at its least.
const NAP: u64 = 1000;

/// Does what was noted at the end of the last iteration, and what has fallen due, before any
/// command of this one.
pub fn after_sleep(ctx: &Ctx) {
    waiting(|waiting| waiting.in_iteration.set(true));
    notes(Notes::forget_delivered);
    do_what_was_noted(ctx);
    notes(Notes::forget_known);
    if table(|table| !table.is_empty()) {
        look_at_due_locks(ctx);
    }
}

/// Does what was noted in this iteration, before its replies are written.
pub fn before_sleep(ctx: &Ctx) {
    let before = alarm();
    // CONFIG SET may have changed it.
    given::follow_configuration();
    discovery::go_on(ctx);
    do_what_was_noted(ctx);
    clients::let_go();
    notes(Notes::forget_seen);
    waiting(|waiting| waiting.in_iteration.set(false));
    if alarm() != before && may_oversleep() {
        events::hurry();
    }
}

/// Whether the server may sleep past the alarm. Before 7.2 it works out how long to sleep before it comes
/// here; but it wakes up for a job of its own at least once in [`NAP`].
fn may_oversleep() -> bool {
    alarm().is_some_and(|alarm| alarm <= given::now().tick_after(NAP))
}

fn alarm() -> Option<Tick> {
    table(|table| table.schedule.alarm())
}

impl Alarm for Ring {
    fn ring(ctx: &Ctx) {
        table(|table| table.schedule.rang());
        look_at_due_locks(ctx);
    }
}

fn do_what_was_noted(ctx: &Ctx) {
    if !waiting(|waiting| waiting.begun.replace(true)) {
        given::grant_grace();
    }
    if notes(|notes| notes.is_idle()) {
        return;
    }
    if ctx.flags().replica() {
        follow_the_master(ctx);
        return;
    }
    if ctx.writes_paused() {
        return;
    }
    if notes(|notes| notes.has_touched()) {
        note(Notes::retry_stuck);
    }
    let slice = Slice::begin();
    noted::drop_gone_and_lost(ctx, slice);
    noted::give_up_closed(ctx, slice);
    touched::hear_who_asked(ctx);
    touched::look_at_touched(ctx, slice);
    noted::line_scores_up(ctx);
    if !notes(|notes| notes.is_idle()) {
        events::hurry();
    }
}

/// The keys are the master's. It learns of nobody here, and the deadlines pass.
fn follow_the_master(ctx: &Ctx) {
    let touched = notes(|notes| {
        notes.forget_waiters();
        notes.take_touched()
    });
    foreign::follow(ctx, touched);
}

/// The locks with waiters or sessions that are due are looked at: a lease or a turn has ended, or
/// a lease is to be renewed.
fn look_at_due_locks(ctx: &Ctx) {
    let now = given::now();
    if is_nothing_due(now) {
        return;
    }
    clients::time_out_due(now);
    let due = table(|table| table.schedule.due(now));
    if !due.is_empty() {
        note(Notes::retry_stuck);
    }
    if !due.is_empty() && ctx.writes_paused() {
        // A paused server must not write.
        let later = now.tick_after(PAUSE);
        table(|table| due.iter().for_each(|id| table.postpone(id, later)));
    } else {
        let slice = Slice::begin();
        let mut due = due.into_iter();
        while let Some(id) = due.next().filter(|_| !slice.is_over()) {
            look_at_due(ctx, &id);
        }
    }
    set_timer(ctx, now);
    if is_time_up(now) || table(|table| table.schedule.is_due(now)) {
        // The timer would wait for a millisecond.
        events::hurry();
    }
}

/// Whether the time of a blocked client is up.
fn is_time_up(now: Now) -> bool {
    blocked(|blocked| blocked.next_timeout()).is_some_and(|until| until <= now.tick())
}

fn is_nothing_due(now: Now) -> bool {
    !is_time_up(now) && table(|table| table.schedule.is_armed(now) && !table.schedule.is_due(now))
}

fn look_at_due(ctx: &Ctx, id: &LockId) {
    if table(|table| table.is_known(id)) {
        look(ctx, id, Queue::AsLeft);
    } else {
        watch::look(ctx, id);
    }
}
