//! What each step is given: the time, and the rules as configured. Also what changes them: grace for waiters that
//! were found, tokens of other servers, and switching interception on and off.

use crate::config;
use crate::keyspace::open_lock::farthest_token;
use crate::lock::{Millis, Now, Rules, Tick};
use crate::server::{Ctx, clock, in_cluster};

use super::state::{note, notes, table, waiting};

/// The server's clocks.
#[must_use]
pub fn now() -> Now {
    let steady = clock::steady_micros();
    let (tick, listening) = (steady / 1000, waiting(|waiting| waiting.listening.get()));
    Now {
        micros: clock::wall_micros(),
        steady,
        deaf: listening.deaf(tick),
        heard: listening.heard(tick),
    }
}

/// The steady clock alone.
#[must_use]
pub fn tick() -> Tick {
    clock::steady_micros() / 1000
}

/// The rules as configured now.
#[must_use]
pub fn rules() -> Rules {
    let intercepts = intercepts();
    Rules {
        turn: config::TURN.get(),
        patience: config::PATIENCE.get(),
        clock_skew: config::CLOCK_SKEW.get(),
        max_waiters: usize::try_from(config::MAX_WAITERS.get()).unwrap_or(usize::MAX),
        grace: waiting(|waiting| waiting.grace.get()),
        intercepts,
        found_answer: intercepts,
    }
}

/// Waiters that are found in the keys count as alive for one turn from now.
pub fn grant_grace() {
    grant_grace_of(config::TURN.get());
}

/// The server has not listened for `missed` milliseconds, in which waiters could not ask. Waiters of which only the
/// score is known count as alive for the same time again, and for one turn at most.
pub fn make_up_for(missed: Millis) {
    if missed > 0 {
        grant_grace_of(missed.min(config::TURN.get()));
    }
}

fn grant_grace_of(time: Millis) {
    let until = now().listening_after(time);
    waiting(|waiting| waiting.grace.set(waiting.grace.get().max(until)));
}

/// Moves the next token ahead of this server's clock: another server has given the tokens until now, and its
/// clock may have been ahead.
pub fn go_ahead_of_the_clock() {
    let skew = config::CLOCK_SKEW.get().saturating_mul(1000);
    go_on_behind(i64::try_from(now().micros.saturating_add(skew)).unwrap_or(0));
}

/// Makes all later tokens greater than this one, which is in the keys: the master gave it, or an earlier run of
/// this server.
pub fn learn(token: i64) {
    go_on_behind(token.min(farthest_token(&rules(), now())));
}

fn go_on_behind(token: i64) {
    waiting(|waiting| {
        let greatest = &waiting.greatest_token;
        greatest.set(greatest.get().max(token));
    });
}

/// In a cluster, whether slots have come from another server.
pub fn follow_slots(ctx: &Ctx) {
    if in_cluster() && ctx.slots_may_have_changed() {
        go_ahead_of_the_clock();
    }
}

/// Whether Redisson's scripts run natively. Interception starts at once when it is switched on. When it is switched
/// off, it goes on until all scores are lined up, so that no waiter loses its place to the Lua scripts.
#[must_use]
pub fn intercepts() -> bool {
    let wanted = config::intercept_eval();
    let now = waiting(|waiting| waiting.intercepts.get());
    match (wanted, now) {
        (false, false) => return false,
        (false, true) if table(|table| table.is_empty()) => {
            intercept_no_more();
            return false;
        }
        (false, true) => line_up(),
        (true, _) => {
            waiting(|waiting| waiting.intercepts.set(true));
            notes(|notes| notes.line_up(None));
        }
    }
    true
}

/// Notices that interception was switched on or off.
pub fn follow_configuration() {
    let _ = intercepts();
}

/// All scores are lined up, and scripts run as Lua from now on.
pub fn intercept_no_more() {
    notes(|notes| notes.line_up(None));
    waiting(|waiting| waiting.intercepts.set(false));
}

/// Scripts are to run as Lua: all scores are lined up first.
fn line_up() {
    if notes(|notes| notes.is_lining_up()) {
        return;
    }
    let locks = table(|table| table.all_tracked());
    note(|notes| notes.line_up(Some(locks)));
}
