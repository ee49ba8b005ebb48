//! The cursor of FAIRLOCK.LOCKS: a word that the client sends to continue a listing.
//!
//! The cursor is the number of waiters and the name of the last lock that was listed. A search through many
//! locks can end at a lock that the user may not read. The user must not see its name. So that position is
//! kept here under a random word, until too many newer ones have come.
//!
//! A walk over the keyspace continues at a number that the server's SCAN has replied; its word is `@` and the number.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::keyspace::number::number;
use crate::waiting::Busy;

/// How many positions are kept.
const KEPT: usize = 64;

thread_local! {
    static PLACES: RefCell<VecDeque<(String, Busy)>> = const { RefCell::new(VecDeque::new()) };
}

/// Where a listing continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind this lock, among those with waiters or a session.
    Behind(Busy),
    /// In the walk over the keyspace.
    Walk(u64),
}

/// The word for a place in the walk over the keyspace.
#[must_use]
pub fn walk(cursor: u64) -> Vec<u8> {
    format!("@{cursor}").into_bytes()
}

/// A number that SCAN or HSCAN has replied, as the client sends it back.
#[must_use]
pub fn of_scan(word: &[u8]) -> Option<u64> {
    let cursor = std::str::from_utf8(word).ok()?.parse::<u64>().ok()?;
    // Rust also takes "+1" and "007".
    (cursor.to_string().as_bytes() == word).then_some(cursor)
}

/// The word for a place that the client may know.
#[must_use]
pub fn shown((waiters, name): &Busy) -> Vec<u8> {
    [format!("{waiters}:").as_bytes(), name].concat()
}

/// The word for a place that it may not know.
#[must_use]
pub fn hidden(place: Busy) -> Vec<u8> {
    let word = format!("*{}", uuid::Uuid::new_v4());
    let bytes = word.clone().into_bytes();
    PLACES.with_borrow_mut(|places| {
        places.truncate(KEPT - 1);
        places.push_front((word, place));
    });
    bytes
}

/// The place that a word stands for.
#[must_use]
pub fn place(word: &[u8]) -> Option<Place> {
    match word {
        [b'@', cursor @ ..] => of_scan(cursor).map(Place::Walk),
        [b'*', ..] => PLACES.with_borrow(|places| {
            let kept = places.iter().find(|(kept, _)| kept.as_bytes() == word);
            kept.map(|(_, (waiters, name))| Place::Behind((*waiters, Rc::clone(name))))
        }),
        _ => behind(word).map(Place::Behind),
    }
}

fn behind(word: &[u8]) -> Option<Busy> {
    let colon = word.iter().position(|byte| *byte == b':')?;
    let (waiters, name) = word.split_at_checked(colon)?;
    let waiters = usize::try_from(number(waiters)?).ok()?;
    Some((waiters, Rc::from(name.get(1..)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stands_for_its_place() {
        for name in [&b"k"[..], b"", b"a:b:\xff"] {
            let at: Busy = (7, Rc::from(name));
            assert_eq!(place(&shown(&at)), Some(Place::Behind(at.clone())));
            let word = hidden(at.clone());
            assert_eq!(word.len(), 37);
            assert_eq!(place(&word), Some(Place::Behind(at)));
        }
        for cursor in [0, 17, u64::MAX] {
            assert_eq!(place(&walk(cursor)), Some(Place::Walk(cursor)));
        }
        for word in [
            &b""[..],
            b"7",
            b":k",
            b"-1:k",
            b"07:k",
            b"*",
            b"x:k",
            b"@",
            b"@-1",
            b"@+1",
            b"@01",
            b"@18446744073709551616",
        ] {
            assert_eq!(place(word), None, "{}", word.escape_ascii());
        }
    }

    #[test]
    fn the_oldest_place_is_forgotten() {
        let first = hidden((1, Rc::from(*b"first")));
        for _ in 1..KEPT {
            assert!(place(&first).is_some());
            let _ = hidden((1, Rc::from(*b"another")));
        }
        assert!(place(&first).is_some());
        let _ = hidden((1, Rc::from(*b"one more")));
        assert_eq!(place(&first), None);
    }
}
