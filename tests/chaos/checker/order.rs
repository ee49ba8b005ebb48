//! First come, first served: of two that an observer saw in the queue at one instant, the one ahead
//! is served first, if both are served from the places they had then.
//!
//! The tokens tell which client was served first: they grow with each acquisition. Redisson's scripts leave none; then
//! the replies tell. The first that could read "granted" was granted first, because none can have been granted in
//! between, unless the lease was over before its holder was told.
//!
//! Only a client that waits by the module's own commands is certain not to be overtaken; a client that waits by
//! Redisson's scripts may be behind, not ahead: scripts of others can drop it.

use super::attempts::Attempt;
use super::{Kind, Part, SLACK, Violation, stalled};
use crate::history::{Fault, Harm, History, Micros, Sight};

pub fn check(part: &Part) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut seen: &[usize] = &[];
    for sight in &part.sights {
        if seen != sight.queue {
            for violation in check_sight(part, sight) {
                if !found.contains(&violation) {
                    found.push(violation);
                }
            }
        }
        seen = &sight.queue;
    }
    found
}

/// Each waiter against the one ahead of it that was served last.
fn check_sight(part: &Part, sight: &Sight) -> Vec<Violation> {
    let served =
        (sight.queue.iter()).filter_map(|client| served_from(part.attempts.get(client)?, sight));
    let mut found = Vec::new();
    let mut last: Option<&Attempt> = None;
    for attempt in served {
        if let Some(ahead) = last
            && is_overtaken(part.history, sight.lock, ahead, attempt)
        {
            let both = [ahead.client, attempt.client];
            found.push(Violation::of(
                Kind::Overtaken,
                part.lock,
                &both,
                attempt.ended,
            ));
        }
        let is_later = last.is_none_or(|ahead| ahead.token < attempt.token);
        if attempt.protected && is_later {
            last = Some(attempt);
        }
    }
    found
}

/// The attempt that was going on at a sight, and later granted from the place it had.
fn served_from<'a>(attempts: &'a [Attempt], sight: &Sight) -> Option<&'a Attempt> {
    attempts.iter().find(|attempt| {
        attempt.granted && attempt.placed_since <= sight.from && sight.to <= attempt.ended
    })
}

fn is_overtaken(history: &History, lock: usize, ahead: &Attempt, behind: &Attempt) -> bool {
    let from = ahead.ended.min(behind.ended).saturating_sub(SLACK);
    let to = ahead.ended.max(behind.ended);
    if tokens_are_lost(history, from, to) {
        return false;
    }
    if let (Some(first), Some(second)) = (ahead.token, behind.token) {
        return second < first;
    }
    behind.ended < ahead.ended
        && ahead.lease > SLACK + stalled(history, from, to)
        && !history.faults.iter().any(|fault| {
            fault.is_between(from, to)
                && (fault.delays() || fault.ends_hold(lock, ahead.client, false))
        })
}

/// Whether a fault may have taken tokens away, so that they tell nothing.
pub fn tokens_are_lost(history: &History, from: Micros, to: Micros) -> bool {
    history
        .faults
        .iter()
        .any(|fault| lost_since(history, fault).is_some() && fault.is_between(from, to))
}

/// Since when a fault may have taken tokens away. Nothing is kept of a lock that is free but the time: if the clock was
/// set before a kill, nothing from before is a bound.
fn lost_since(history: &History, fault: &Fault) -> Option<Micros> {
    let Harm::Kill { lost_since } = fault.harm else {
        return None;
    };
    let mut before = history
        .faults
        .iter()
        .filter(|other| other.from < fault.from);
    let clock_was_set = before.any(|other| matches!(other.harm, Harm::ClockStep { .. }));
    if clock_was_set { Some(0) } else { lost_since }
}
