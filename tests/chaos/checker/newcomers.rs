//! No newcomer is served before a waiter that was in the queue already. So neither writers nor readers starve: however
//! many come, a waiter has its turn after those that were ahead of it.
//!
//! [`order`] compares waiters that were in the queue together. Here one of the two never was: at the last sight of the
//! waiter before the other client asked, that one was neither a waiter nor a holder. The tokens tell which was served
//! first. A waiter's place counts as in [`order`].
//!
//! [`order`]: super::order

use std::collections::BTreeMap;

use super::attempts::Attempt;
use super::order::tokens_are_lost;
use super::{Kind, Part, Violation};
use crate::history::{Answer, Call, Micros, Request, Sight};

/// A request that was answered by a token.
#[derive(Clone, Copy)]
struct Grant {
    client: usize,
    /// When the client first asked in this attempt.
    began: Micros,
    invoked: Micros,
    answered: Micros,
    token: i64,
}

pub fn check(part: &Part) -> Vec<Violation> {
    let grants = grants_of(part);
    let attempts = part.attempts.values().flatten();
    let found = attempts.filter_map(|attempt| {
        let by = overtaken_by(part, attempt, &grants)?;
        let both = [attempt.client, by.client];
        Some(Violation::of(Kind::Barged, part.lock, &both, by.answered))
    });
    found.collect()
}

/// In the order in which they were asked for.
fn grants_of(part: &Part) -> Vec<Grant> {
    let mut began: BTreeMap<(usize, u64), Micros> = BTreeMap::new();
    let mut grants = Vec::new();
    for call in &part.calls {
        let began = began.entry((call.client, call.attempt));
        let began = *began.or_insert(call.invoked);
        grants.extend(granted(call, began));
    }
    grants.sort_by_key(|grant| grant.invoked);
    grants
}

fn granted(call: &Call, began: Micros) -> Option<Grant> {
    match (call.request, &call.answer) {
        (Request::Acquire { .. }, Answer::Granted(Some(token))) => Some(Grant {
            client: call.client,
            began,
            invoked: call.invoked,
            answered: call.answered,
            token: *token,
        }),
        _ => None,
    }
}

/// The first that came while the attempt waited, and was served before it.
fn overtaken_by(part: &Part, attempt: &Attempt, grants: &[Grant]) -> Option<Grant> {
    let token = attempt.token.filter(|_| attempt.protected)?;
    let first = (part.sights).partition_point(|sight| sight.from < attempt.placed_since);
    let during = part.sights[first..].iter();
    let during = during.take_while(|sight| sight.to <= attempt.ended);
    let waiting: Vec<&Sight> = during
        .filter(|sight| sight.queue.contains(&attempt.client))
        .copied()
        .collect();
    let since = waiting.first()?;
    let came = grants.partition_point(|grant| grant.invoked <= since.to);
    let came = grants[came..].iter();
    let came = came.take_while(|grant| grant.invoked < attempt.ended);
    let mut served_before = came.filter(|grant| grant.token < token);
    let by = served_before.find(|grant| {
        let until = attempt.ended.max(grant.answered);
        comes_from_outside(part, grant, &waiting)
            && !tokens_are_lost(part.history, since.from, until)
    });
    by.copied()
}

/// Whether the client was neither a waiter nor a holder when the waiter was last seen before it asked.
/// A script that runs as Lua can drop a living waiter, which the server puts back: that sight may be of between.
fn comes_from_outside(part: &Part, grant: &Grant, waiting: &[&Sight]) -> bool {
    let before = waiting.partition_point(|sight| sight.to < grant.invoked);
    let Some(last) = waiting[..before].last() else {
        return false;
    };
    let earlier = part.sights.partition_point(|sight| sight.from < last.from);
    let is_put_back = (part.sights[..earlier].last())
        .is_some_and(|sight| grant.began <= sight.from && sight.queue.contains(&grant.client));
    !is_put_back && !last.queue.contains(&grant.client) && !last.holders.contains(&grant.client)
}
