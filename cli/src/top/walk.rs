//! The search of one server's keyspace for locks without waiters.
//!
//! With many keys it takes longer than a look may. So the next look continues it. Until it is complete, the result of
//! the last complete search is shown.

use std::time::Duration;

use crate::lock::{Listing, Lock};

/// How far a search has come.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Where it goes on.
    next: Option<Vec<u8>>,
    /// What it has found so far, and when.
    found: Vec<(Duration, Lock)>,
    /// What the last complete search has found.
    whole: Option<Vec<(Duration, Lock)>>,
}

impl Walk {
    /// The cursor to go on with; none if the search begins.
    #[must_use]
    pub fn cursor(&self) -> Option<&[u8]> {
        self.next.as_deref()
    }

    /// Takes in a reply. True if the search is over: through all keys, or with as many locks as are wanted.
    pub fn take(&mut self, at: Duration, listing: Listing, limit: usize) -> bool {
        let found = listing.locks.into_iter().map(|lock| (at, lock));
        self.found.extend(found);
        self.next = listing.more.filter(|_| self.found.len() < limit);
        let is_over = self.next.is_none();
        if is_over {
            self.whole = Some(std::mem::take(&mut self.found));
        }
        is_over
    }

    /// Whether no search was complete yet.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.whole.is_none()
    }

    /// The locks that were found, as they are now if nothing else has happened to them.
    pub fn locks(&self, now: Duration) -> impl Iterator<Item = Lock> {
        let found = self.whole.as_ref().unwrap_or(&self.found);
        found
            .iter()
            .filter_map(move |(at, lock)| aged(lock, now.saturating_sub(*at)))
    }
}

/// A lock some time later; `None` if its lease has ended.
fn aged(lock: &Lock, by: Duration) -> Option<Lock> {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    let mut lock = lock.clone();
    if lock.lease >= 0 {
        lock.lease = lock.lease.checked_sub(by).filter(|left| *left >= 0)?;
    }
    if lock.held >= 0 {
        lock.held = lock.held.saturating_add(by);
    }
    Some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str, lease: i64) -> Lock {
        Lock {
            name: name.into(),
            owner: Some(b"a".to_vec()),
            lease,
            held: 100,
            ..Lock::default()
        }
    }

    fn listing(names: &[&str], more: Option<&str>) -> Listing {
        Listing {
            locks: names.iter().map(|name| lock(name, 1_000)).collect(),
            more: more.map(|more| more.as_bytes().to_vec()),
        }
    }

    fn names(walk: &Walk, now: u64) -> Vec<String> {
        let locks = walk.locks(Duration::from_millis(now));
        let name = |lock: Lock| String::from_utf8_lossy(&lock.name).into_owned();
        locks.map(name).collect()
    }

    const AT: Duration = Duration::from_millis(50);

    #[test]
    fn a_search_goes_on_and_begins_anew_when_it_is_over() {
        let mut walk = Walk::default();
        assert_eq!(walk.cursor(), None);
        assert!(!walk.take(AT, listing(&["a"], Some("7")), 10));
        assert_eq!(walk.cursor(), Some(&b"7"[..]));
        assert!(walk.is_first());
        assert_eq!(names(&walk, 60), ["a"]);
        assert!(walk.take(AT, listing(&["b"], None), 10));
        assert!(!walk.is_first());
        assert_eq!(
            (walk.cursor(), names(&walk, 60)),
            (None, vec!["a".into(), "b".into()])
        );
        // Until the next one is over, the last one counts.
        walk.take(AT, listing(&["c"], Some("9")), 10);
        assert_eq!(names(&walk, 60), ["a", "b"]);
        walk.take(AT, listing(&[], None), 10);
        assert_eq!(names(&walk, 60), ["c"]);
    }

    #[test]
    fn it_ends_with_as_many_locks_as_are_wanted() {
        let mut walk = Walk::default();
        assert!(walk.take(AT, listing(&["a", "b"], Some("7")), 2));
        assert_eq!(walk.cursor(), None);
    }

    #[test]
    fn what_was_found_grows_old_and_ends() {
        let mut walk = Walk::default();
        walk.take(AT, listing(&["a"], None), 10);
        let later = Duration::from_millis(450);
        let found: Vec<Lock> = walk.locks(later).collect();
        assert_eq!((found[0].lease, found[0].held), (600, 500));
        assert_eq!(names(&walk, 1_050), ["a"]);
        assert!(names(&walk, 1_051).is_empty());
        let endless = lock("b", -1);
        let aged = aged(&endless, Duration::from_secs(9)).expect("no end");
        assert_eq!((aged.lease, aged.held), (-1, 9_100));
    }
}
