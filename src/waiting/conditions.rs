//! What each step is given: the time, and the rules as configured. Also what changes them: grace for waiters that
//! were found, and tokens of other servers. And the time limit for the module's work in one iteration of the event
//! loop, so that a backlog does not delay other clients.

use std::ffi::CStr;

use crate::config;
use crate::keyspace::Names;
use crate::lock::{Heard, Millis, Now, Rules, Tick, token};
use crate::server::cluster::SlotState;
use crate::server::info::field_of;
use crate::server::{Ctx, clock, in_cluster};

use super::record::LockId;
use super::slots::DOUBT;
use super::state::{known_slots, listening, waiting};

/// The server's clocks.
pub fn now() -> Now {
    let steady = clock::steady_micros();
    let tick = Tick::of(steady);
    listening(|listening| Now {
        micros: clock::wall_micros(),
        steady,
        behind: listening.behind(tick),
        heard: listening.heard(tick),
    })
}

/// The steady clock alone.
pub fn tick() -> Tick {
    Tick::of(clock::steady_micros())
}

/// The rules as configured now.
pub fn rules() -> Rules {
    Rules {
        turn: config::TURN.get(),
        patience: config::PATIENCE.get(),
        clock_skew: config::CLOCK_SKEW.get(),
        max_waiters: usize::try_from(config::MAX_WAITERS.get()).unwrap_or(usize::MAX),
        grace: waiting(|waiting| waiting.grace.get()),
        intercepts: config::intercept_eval(),
    }
}

/// Waiters that are found in the keys count as alive for one turn from now.
pub fn grant_grace() {
    extend_grace(now(), Millis::MAX);
}

/// While the server did not listen, since the last step, waiters could not ask: those of which only the score is known
/// count as alive for the same time again.
pub fn make_up_for_stalls(now: Now) {
    let before = waiting(|waiting| waiting.behind.replace(now.behind));
    // What was heard stays behind for a while after a delay: a grace that ends now would not be over yet.
    if now.behind > before {
        extend_grace(now, now.behind - before);
    }
}

/// Waiters of which only the score is known count as alive for longer, and for one turn from now at most.
fn extend_grace(now: Now, by: Millis) {
    let latest = now.listening_after(config::TURN.get());
    let longer = |grace: Heard| grace.max(now.listening()).after(by).min(latest);
    waiting(|waiting| waiting.grace.update(longer));
}

/// Moves the next token this far ahead of this server's clock, which starts, or takes over from another server.
pub fn go_ahead_of_the_clock(by: Millis) {
    let token = token::ahead(now(), by);
    waiting(|waiting| waiting.greatest_token.update(|last| last.max(token)));
}

/// Makes all later tokens greater than this one, which is in a key of tokens.
pub fn learn(token: i64) {
    let (rules, now) = (rules(), now());
    let learn = |last| token::greatest_after(last, token, &rules, now);
    waiting(|waiting| waiting.greatest_token.update(learn));
}

/// Slots have come from another node. Waiters are on their way here, and its tokens may be ahead of this clock.
pub fn slots_have_come() {
    grant_grace();
    go_ahead_of_the_clock(config::CLOCK_SKEW.get());
}

/// The field of the server's INFO that counts the commands by which slots come.
const BRINGS_SLOTS: &CStr = c"cmdstat_cluster|setslot";

/// A command is seen that changes permissions: the server has not checked yet whether it may.
pub fn permissions_change() {
    let until = tick().after(DOUBT);
    waiting(|waiting| waiting.permissions_change.set(until));
}

/// Whether permissions may have changed since this instant.
pub fn may_have_changed_permissions(since: Tick) -> bool {
    since < waiting(|waiting| waiting.permissions_change.get())
}

/// A client may be about to move a slot, perhaps to this node: the server has not checked yet whether it may.
pub fn slot_is_named(slot: u16, may_come: bool) {
    let now = tick();
    known_slots(|slots| slots.named(slot, may_come, now));
}

/// In a cluster, before a step on a lock: its slot may have come from another server. What only was named, and has not
/// come, changes nothing.
pub fn follow_slots(names: &Names) {
    if known_slots(|slots| slots.may_have_come(names.slot())) {
        let count = field_of(c"commandstats", BRINGS_SLOTS).unwrap_or_default();
        // What follows in the field counts calls that were refused.
        let runs = count.split(",rejected_calls").next().unwrap_or_default();
        if known_slots(|slots| slots.have_run(runs)) {
            go_ahead_of_the_clock(config::CLOCK_SKEW.get());
        }
    }
}

/// Whether all keys of a lock are at this node. Selects the lock's database.
pub fn is_here(ctx: &Ctx, lock: &LockId) -> bool {
    ctx.select_db(lock.db) && slot_state(ctx, &Names::of(&lock.name), false) == SlotState::Here
}

/// Where the keys of a lock are.
pub fn slot_state(ctx: &Ctx, names: &Names, is_shared: bool) -> SlotState {
    if !in_cluster() {
        return SlotState::Here;
    }
    let last = if is_shared {
        &names.shared
    } else {
        &names.lock
    };
    let (state, is_stable) = ctx.slot_state([&names.lock, &names.queue, &names.deadlines, last]);
    known_slots(|slots| match state {
        SlotState::Here if is_stable => slots.found(names.slot(), tick()),
        SlotState::Down => slots.is_down = true,
        _ => (),
    });
    state
}

/// Microseconds for all the work at the beginning or end of an iteration. One more step may follow, which has its
/// own bound, and the server has some work of its own with each client that is unblocked.
const SLICE: u64 = 2000;

/// A stretch of work begins, of at most [`SLICE`]. What is returned tells whether it is over: the rest is left to the
/// next iteration.
pub fn begin_slice() -> impl Fn() -> bool {
    let ends = clock::steady_micros().saturating_add(SLICE);
    move || clock::steady_micros() >= ends
}
