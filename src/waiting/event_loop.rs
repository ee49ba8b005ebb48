//! The order of things in an iteration of the event loop: what is done when it begins, when it
//! ends, and when the timer rings in between.
//!
//! Callbacks only take notes (see [`deferred`](super::deferred)). The work that was noted is done here,
//! between commands, when the iteration ends.

use crate::config;
use crate::keyspace::QueueView;
use crate::lock::{Now, Tick};
use crate::server::migration::Migration;
use crate::server::timer::Alarm;
use crate::server::{Ctx, events};

use super::arriving::Arriving;
use super::clients;
use super::conditions;
use super::deferred::Notes;
use super::discovery;
use super::foreign;
use super::listening::Listening;
use super::moving;
use super::noted;
use super::patrol;
use super::schedule::Ring;
use super::slice::Slice;
use super::state::{
    arriving, blocked, ensure_before_sleep, note, notes, rest_if_idle, table, waiting,
};
use super::step::{look, set_timer};
use super::touched;

/// Milliseconds after which a lock that is due is looked at again while writes are paused.
const PAUSE: u64 = 100;
/// The longest sleep of the server in milliseconds: with the lowest `hz`, its own cron job wakes it then.
const NAP: u64 = 1000;

/// Does what was noted at the end of the last iteration, and what has fallen due, before any
/// command of this one.
pub fn after_sleep(ctx: &Ctx) {
    waiting(|waiting| waiting.in_iteration.set(true));
    conditions::forget_slots();
    let began = conditions::tick();
    begin_to_listen(ctx, began);
    notes(Notes::forget_replied);
    do_what_was_noted(ctx);
    notes(Notes::forget_known);
    if is_any_lock_tracked() {
        look_at_due_locks(ctx);
        patrol::go_on(ctx);
    }
    listening(|listening| listening.reads(began));
}

fn is_any_lock_tracked() -> bool {
    table(|table| !table.is_empty())
}

/// An iteration begins: notices for how long the server has not listened.
fn begin_to_listen(ctx: &Ctx, began: Tick) {
    if is_any_lock_tracked() {
        listening(|listening| listening.begins(began, ctx.writes_paused()));
        conditions::make_up_for(waiting(|waiting| waiting.listening.get().missed()));
    } else {
        listening(Listening::rests);
    }
}

/// Does what was noted in this iteration, before its replies are written.
pub fn before_sleep(ctx: &Ctx) {
    let before = alarm();
    conditions::forget_slots();
    follow_configuration(ctx);
    if waiting(|waiting| waiting.slots_have_come.take()) {
        moving::look_at_arriving(ctx);
    }
    let have_gone = waiting(|waiting| waiting.slots_have_gone.take());
    if have_gone {
        moving::look_at_slots(ctx);
    }
    discovery::go_on(ctx);
    time_out_due();
    do_what_was_noted(ctx);
    if have_gone {
        moving::send_after_slots(ctx);
    }
    clients::unblock_ended(ctx);
    notes(Notes::forget_seen);
    waiting(|waiting| waiting.in_iteration.set(false));
    stop_timer_if_idle(ctx);
    let alarm = alarm();
    if is_any_lock_tracked() || alarm != before {
        end_iteration(ctx, alarm, alarm != before);
    }
    rest_if_idle();
}

/// CONFIG SET may have switched interception on or off.
fn follow_configuration(ctx: &Ctx) {
    if conditions::intercepts() && !config::intercept_eval() && !ctx.writes_paused() {
        noted::hand_back_all(ctx);
    }
    if waiting(|waiting| waiting.has_switched_on.take()) {
        discovery::start(ctx);
    }
}

/// Stops the timer if it would ring for nothing.
fn stop_timer_if_idle(ctx: &Ctx) {
    if !is_any_lock_tracked() && blocked(|blocked| blocked.next_timeout()).is_none() {
        table(|table| table.schedule.stop_timer(ctx));
    }
}

/// Times out clients, but only after all requests that came in time were read: one of them may serve the client.
fn time_out_due() {
    if blocked(|blocked| blocked.next_timeout()).is_some() {
        let now = conditions::tick();
        clients::time_out_due(waiting(|waiting| waiting.listening.get().read_until(now)));
    }
}

/// The server goes to sleep, until the alarm at the longest.
fn end_iteration(ctx: &Ctx, alarm: Option<Tick>, is_new: bool) {
    let now = conditions::tick();
    let own_job = now.saturating_add(NAP);
    // If the alarm is overdue, the next iteration begins at once.
    let wakes = alarm.map_or(own_job, |alarm| alarm.clamp(now, own_job));
    // Before 7.2 the server computes how long to sleep before it calls this hook, so it may sleep past a new
    // alarm. Clients whose time is up, and that were left for the next iteration, have no timer.
    if is_time_up(now) || (is_new && wakes < own_job) {
        events::hurry();
    }
    listening(|listening| listening.ends(now, ctx.writes_paused(), wakes));
}

fn listening(change: impl FnOnce(&mut Listening)) {
    waiting(|waiting| {
        let mut listening = waiting.listening.get();
        change(&mut listening);
        waiting.listening.set(listening);
    });
}

fn alarm() -> Option<Tick> {
    table(|table| table.schedule.alarm())
}

impl Alarm for Ring {
    fn ring(ctx: &Ctx) {
        table(|table| table.schedule.rang());
        look_at_due_locks(ctx);
        patrol::go_on(ctx);
    }
}

/// Slots move as a whole (see [`crate::server::migration`]). Their locks are dealt with in this very iteration.
pub fn slots_migrate(ctx: &Ctx, what: Migration) {
    match what {
        Migration::ImportStarted => {
            arriving(Arriving::begins);
            // If the slots were here a moment ago, what is known of their locks is forgotten before they return.
            waiting(|waiting| waiting.slots_have_gone.set(true));
        }
        Migration::ImportAborted => {
            arriving(Arriving::ends);
        }
        Migration::ImportCompleted => {
            // A token may be requested before the server has recorded that the slots are its own.
            conditions::go_ahead_of_the_clock();
            waiting(|waiting| waiting.slots_have_come.set(true));
            if !arriving(Arriving::ends) {
                discovery::start(ctx);
            }
        }
        Migration::ExportCompleted => waiting(|waiting| waiting.slots_have_gone.set(true)),
    }
    ensure_before_sleep();
}

fn do_what_was_noted(ctx: &Ctx) {
    if !waiting(|waiting| waiting.begun.replace(true)) {
        conditions::grant_grace();
        ctx.warn_of_default_user();
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
    touched::look_at_touched(ctx, slice);
    if !notes(|notes| notes.is_idle()) {
        events::hurry();
    }
}

/// The server is a replica: its keys are the master's. It drops its notes about waiters, which the master drops
/// from the queue when their deadlines pass, and notes only which locks have a queue.
fn follow_the_master(ctx: &Ctx) {
    let touched = notes(|notes| {
        notes.forget_waiters();
        notes.take_touched()
    });
    foreign::follow(ctx, touched);
}

/// Looks at the locks with waiters or sessions that are due: a lease or a turn has ended, or
/// a lease is to be renewed.
fn look_at_due_locks(ctx: &Ctx) {
    let now = conditions::now();
    if is_nothing_due(now) {
        return;
    }
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
            look(ctx, &id, QueueView::AsLeft);
        }
    }
    set_timer(ctx, now);
    if table(|table| table.schedule.is_due(now)) {
        // The timer would wait for a millisecond.
        events::hurry();
    }
}

/// Whether the time of a blocked client is up.
fn is_time_up(now: Tick) -> bool {
    blocked(|blocked| blocked.next_timeout()).is_some_and(|until| until <= now)
}

fn is_nothing_due(now: Now) -> bool {
    table(|table| table.schedule.is_armed(now) && !table.schedule.is_due(now))
}
