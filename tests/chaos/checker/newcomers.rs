//! No newcomer is served before a waiter that was in the queue already. So neither writers nor readers starve: however
//! many come, a waiter has its turn after those that were ahead of it.
//!
//! [`order`] compares waiters that were in the queue together. Here one of the two never was: at the last sight of the
//! waiter before the other client asked, that one was neither a waiter nor a holder. The tokens tell which was served
//! first. A waiter's place counts as in [`order`].
//!
//! [`order`]: super::order

use super::attempts::Attempt;
use super::order::tokens_are_lost;
use super::{Kind, Part, Violation};
use crate::history::Sight;

pub fn check(part: &Part) -> Vec<Violation> {
    let attempts = || part.attempts.values().flatten();
    let mut grants: Vec<&Attempt> = attempts().filter(|of| of.token.is_some()).collect();
    grants.sort_by_key(|grant| grant.asked);
    let found = attempts().filter_map(|attempt| {
        let by = overtaken_by(part, attempt, &grants)?;
        let both = [attempt.client, by.client];
        Some(Violation::of(Kind::Barged, part.lock, &both, by.ended))
    });
    found.collect()
}

/// The first that came while the attempt waited, and was served before it.
fn overtaken_by<'a>(part: &Part, attempt: &Attempt, grants: &[&'a Attempt]) -> Option<&'a Attempt> {
    attempt.token.filter(|_| attempt.protected)?;
    let first = (part.sights).partition_point(|sight| sight.from < attempt.placed_since);
    let during = part.sights[first..].iter();
    let during = during.take_while(|sight| sight.to <= attempt.ended);
    let waiting: Vec<&Sight> = during
        .filter(|sight| sight.queue.contains(&attempt.client))
        .copied()
        .collect();
    let since = waiting.first()?;
    let came = grants.partition_point(|grant| grant.asked <= since.to);
    let came = grants[came..].iter();
    let came = came.take_while(|grant| grant.asked < attempt.ended);
    let mut served_before = came.filter(|grant| grant.token < attempt.token);
    let by = served_before.find(|grant| {
        let until = attempt.ended.max(grant.ended);
        comes_from_outside(part, grant, &waiting)
            && !tokens_are_lost(part.history, since.from, until)
    });
    by.copied()
}

/// Whether the client was neither a waiter nor a holder when the waiter was last seen before it asked.
/// A script that runs as Lua can drop a living waiter, which the server puts back: that sight may be of between.
fn comes_from_outside(part: &Part, grant: &Attempt, waiting: &[&Sight]) -> bool {
    let before = waiting.partition_point(|sight| sight.to < grant.asked);
    let Some(last) = waiting[..before].last() else {
        return false;
    };
    let earlier = part.sights.partition_point(|sight| sight.from < last.from);
    let is_put_back = (part.sights[..earlier].last())
        .is_some_and(|sight| grant.began <= sight.from && sight.queue.contains(&grant.client));
    !is_put_back && !last.queue.contains(&grant.client) && !last.holders.contains(&grant.client)
}
