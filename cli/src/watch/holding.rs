//! The holders of a lock, and those that lost or got it between two looks.
//!
//! An event names no owner. But each acquisition has a token of its own, so two looks tell which holders have come and
//! gone in between, even if it is the same owner. A hold that began and ended between two looks is not seen.

use crate::lock::Lock;
use crate::server::Link;

/// The holders and their tokens; `None` if they are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding(Option<Vec<Holder>>);

/// An owner, and its token if it has one.
type Holder = (Vec<u8>, Option<i64>);

/// The holders that lost a lock, and those that got it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// They held it before.
    pub from: Vec<Vec<u8>>,
    /// They hold it now.
    pub to: Vec<Vec<u8>>,
}

impl Holding {
    /// The holders of a lock as it is now. Of a lock that is held SHARED the server is asked for them; they are not
    /// known if the user may not ask, or if there are too many for one reply.
    pub async fn of(link: &Link, key: &[u8], lock: &Lock) -> Self {
        if !lock.is_shared() {
            return Self::alone(lock);
        }
        let all = link.sender().holders(key, None).await.ok();
        let all = all.filter(|all| all.more.is_none());
        let named = |lock: Lock| Some((lock.owner?, lock.token));
        Self(all.map(|all| all.holders.into_iter().filter_map(named).collect()))
    }

    fn alone(lock: &Lock) -> Self {
        let holder = lock.owner.clone().map(|owner| (owner, lock.token));
        Self(Some(holder.into_iter().collect()))
    }

    /// What has changed since an earlier look.
    #[must_use]
    pub fn since(&self, before: &Self) -> Changes {
        let (Some(before), Some(now)) = (&before.0, &self.0) else {
            return Changes::default();
        };
        let without = |some: &[Holder], others: &[Holder]| {
            let left = some.iter().filter(|holder| !others.contains(holder));
            left.map(|(owner, _)| owner.clone()).collect()
        };
        Changes {
            from: without(before, now),
            to: without(now, before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holders: &[(&str, i64)]) -> Holding {
        let holders = holders.iter();
        let holders = holders.map(|(owner, token)| (owner.as_bytes().to_vec(), Some(*token)));
        Holding(Some(holders.collect()))
    }

    fn changes(before: &Holding, now: &Holding) -> (Vec<String>, Vec<String>) {
        let changes = now.since(before);
        let texts = |names: Vec<Vec<u8>>| {
            let names = names
                .iter()
                .map(|name| String::from_utf8_lossy(name).into_owned());
            names.collect()
        };
        (texts(changes.from), texts(changes.to))
    }

    #[test]
    fn tokens_tell_who_has_come_and_gone() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (before, now, from, to) in [
            (&[][..], &[("a", 1)][..], &[][..], &["a"][..]),
            (&[("a", 1)], &[("a", 1)], &[], &[]),
            (&[("a", 1)], &[("b", 2)], &["a"], &["b"]),
            (&[("a", 1)], &[("a", 2)], &["a"], &["a"]),
            (&[("a", 1), ("b", 2)], &[("b", 2), ("c", 3)], &["a"], &["c"]),
        ] {
            let expected: (Vec<String>, Vec<String>) = (names(from), names(to));
            assert_eq!(changes(&held(before), &held(now)), expected);
        }
    }

    #[test]
    fn of_what_is_not_known_nothing_is_said() {
        let (unknown, some) = (Holding(None), held(&[("a", 1)]));
        for (before, now) in [(&unknown, &some), (&some, &unknown), (&unknown, &unknown)] {
            assert_eq!(now.since(before), Changes::default());
        }
    }

    #[test]
    fn a_lock_with_one_holder_says_who_it_is() {
        let mut lock = Lock {
            owner: Some(b"a".to_vec()),
            token: Some(1),
            ..Lock::default()
        };
        assert_eq!(Holding::alone(&lock), held(&[("a", 1)]));
        lock.owner = None;
        assert_eq!(Holding::alone(&lock), held(&[]));
    }
}
