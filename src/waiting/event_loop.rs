//! The order of things in an iteration of the event loop: what is done when it begins, when it
//! ends, and when the timer rings in between.
//!
//! Callbacks only note work (see [`Work`](super::record::Work)). It is done here, between commands, when the iteration
//! ends.

use crate::error::Error;
use crate::keyspace::QueueView;
use crate::lock::{Listening, Tick};
use crate::server::cluster::writes_paused;
use crate::server::{Ctx, events, is_replica};

use super::clients;
use super::conditions;
use super::state::{blocked, known_slots, listening, rest_if_idle, table, waiting};
use super::step::set_timer;
use super::work;

/// Milliseconds after which a lock that is due is looked at again while writes are paused.
const PAUSE: u64 = 100;
/// The longest sleep of the server in milliseconds: with the lowest `hz`, its own cron job wakes it then.
const NAP: u64 = 1000;

/// Does what was noted at the end of the last iteration, and what has fallen due, before any
/// command of this one.
pub fn after_sleep(ctx: &Ctx) {
    waiting(|waiting| waiting.in_iteration.set(true));
    let began = conditions::tick();
    begin_to_listen(began);
    do_what_was_noted(ctx);
    look_at_due_locks(ctx);
    listening(|listening| listening.reads(began));
}

fn is_any_lock_tracked() -> bool {
    table(|table| !table.is_empty())
}

/// An iteration begins: notices for how long the server has not listened.
fn begin_to_listen(began: Tick) {
    if is_any_lock_tracked() {
        let alarm = alarm();
        listening(|listening| listening.begins(began, writes_paused(), alarm));
    } else {
        listening(Listening::rests);
    }
}

/// Does what was noted in this iteration, before its replies are written.
pub fn before_sleep(ctx: &Ctx) {
    let before = alarm();
    work::look_on(ctx);
    // Only after all requests that came in time were read: one of them may serve the client.
    clients::time_out_due(ctx, listening(|listening| listening.read_until()));
    do_what_was_noted(ctx);
    if known_slots(|slots| std::mem::take(&mut slots.is_down)) {
        clients::send_away(&Error::CLUSTER_DOWN, |_| true);
    }
    if is_replica() {
        clients::send_away(&Error::UNBLOCKED, |_| true);
    }
    clients::unblock_ended();
    waiting(|waiting| waiting.in_iteration.set(false));
    let alarm = alarm();
    if is_any_lock_tracked() || alarm != before {
        end_iteration(alarm, alarm != before);
    }
    rest_if_idle();
}

/// The server goes to sleep, until the alarm at the longest.
fn end_iteration(alarm: Option<Tick>, is_new: bool) {
    let now = conditions::tick();
    let own_job = now.after(NAP);
    // If the alarm is overdue, the next iteration begins at once.
    let wakes = alarm.map_or(own_job, |alarm| alarm.clamp(now, own_job));
    // Before 7.2 the server computes how long to sleep before it calls this hook, so it may sleep past a new
    // alarm. Clients whose time is up, and that were left for the next iteration, have no timer.
    let is_time_up = blocked(|blocked| blocked.next_timeout()).is_some_and(|until| until <= now);
    let catches_up = listening(|listening| listening.catches_up());
    if (is_time_up && !catches_up) || (is_new && wakes < own_job) {
        events::hurry();
    }
    listening(|listening| listening.ends(now, writes_paused(), wakes));
}

fn alarm() -> Option<Tick> {
    table(|table| table.schedule.alarm())
}

pub fn timer_rings(ctx: &Ctx) {
    table(|table| table.schedule.rang());
    look_at_due_locks(ctx);
}

fn do_what_was_noted(ctx: &Ctx) {
    if !waiting(|waiting| waiting.has_begun.replace(true)) {
        conditions::grant_grace();
        conditions::go_ahead_of_the_clock(0);
        ctx.warn_of_default_user();
    }
    if table(|table| table.noted()) > 0 && !writes_paused() {
        work::go_on(ctx);
        if table(|table| table.noted()) > 0 {
            events::hurry();
        }
    }
}

/// Looks at the locks with waiters or sessions that are due: a lease or a turn has ended, or
/// a lease is to be renewed.
fn look_at_due_locks(ctx: &Ctx) {
    let now = conditions::now();
    if !table(|table| table.schedule.is_due(now)) {
        return set_timer(ctx, now);
    }
    let due = table(|table| table.schedule.due(now));
    if writes_paused() {
        // A paused server must not write.
        let later = now.tick_after(PAUSE);
        table(|table| due.iter().for_each(|id| table.postpone(id, later)));
    } else {
        let is_over = conditions::begin_slice();
        let mut due = due.into_iter();
        while let Some(id) = due.next().filter(|_| !is_over()) {
            let mut work = table(|table| table.kept_work(&id));
            work.touch(QueueView::AsLeft);
            work::attend(ctx, &id, work);
        }
    }
    set_timer(ctx, now);
    let catches_up = listening(|listening| listening.catches_up());
    if table(|table| table.schedule.is_due(now)) && !catches_up {
        // The timer would wait for a millisecond.
        events::hurry();
    }
}
