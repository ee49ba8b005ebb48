//! Never more holders than any of them tolerates, by what an observer reads in the keys: they name all holders of
//! an instant, so that neither leases nor lost replies are in doubt. [`holds`] says the same by what clients were told.
//!
//! [`holds`]: super::holds

use std::collections::HashMap;

use super::Violation;
use crate::history::{ANY, EXCLUSIVE, History, Limit, Request, Sight};

/// In which ways clients have asked for a lock: the least limit of each, and its greatest.
pub struct Limits(HashMap<usize, (Limit, Limit)>);

impl Limits {
    pub fn of_lock(history: &History, lock: usize) -> Self {
        let mut limits: HashMap<usize, (Limit, Limit)> = HashMap::new();
        for call in history.calls.iter().filter(|call| call.lock == lock) {
            if let Request::Acquire { limit, .. } = call.request {
                let of = limits.entry(call.client).or_insert((limit, limit));
                *of = (of.0.min(limit), of.1.max(limit));
            }
        }
        Self(limits)
    }

    /// The most holders that these certainly tolerate at most.
    fn tolerated(&self, holders: &[usize]) -> Limit {
        let limits = holders.iter().filter_map(|holder| self.0.get(holder));
        limits.map(|(_, most)| *most).min().unwrap_or(ANY)
    }

    /// Whether a waiter certainly can have the lock beside its holders.
    pub fn have_room(&self, holders: &[usize], waiter: usize) -> bool {
        let least = |client: &usize| self.0.get(client).map_or(EXCLUSIVE, |(least, _)| *least);
        let all = holders.len() + 1;
        holders.is_empty() || least(&waiter) >= all && holders.iter().all(|of| least(of) >= all)
    }
}

pub fn check(history: &History) -> Vec<Violation> {
    let mut sights: HashMap<usize, Vec<&Sight>> = HashMap::new();
    for sight in &history.sights {
        sights.entry(sight.lock).or_default().push(sight);
    }
    let mut found = Vec::new();
    for (lock, mut sights) in sights {
        let limits = Limits::of_lock(history, lock);
        sights.dedup_by(|sight, before| sight.holders == before.holders);
        found.extend(sights.iter().filter_map(|sight| too_many(sight, &limits)));
    }
    found
}

fn too_many(sight: &Sight, limits: &Limits) -> Option<Violation> {
    let limit = limits.tolerated(&sight.holders);
    (sight.holders.len() > limit).then(|| Violation::TooManyHolders {
        lock: sight.lock,
        clients: sight.holders.clone(),
        limit,
        at: sight.from,
    })
}
