//! What is written of a holder: its hold count and the token in the lock's hash, and of a shared holder its entry in
//! the shared-holders key.

use crate::lock::{Holder, Limit, Terms, Wall};
use crate::server::{Key, Str, string};

use super::number::number;

thread_local! {
    /// The field of a lock's hash that holds its token: no owner is named like that.
    pub static TOKEN: Str = string(b"");
}

/// A hold count, from 1.
pub fn hold_count(text: &[u8]) -> Option<i64> {
    number(text).filter(|count| *count >= 1)
}

/// What the lock's hash says of an exclusive holder, if it has a token. Its lease is in no field.
pub fn exclusive(lock: &Key<'_>) -> Option<Holder> {
    let token = token_of(lock)?;
    Some(Holder::new(Terms::UNKNOWN, Wall::default(), token, None))
}

pub fn token_of(lock: &Key<'_>) -> Option<i64> {
    TOKEN
        .with(|field| lock.hash_get(field))
        .and_then(|text| read_token(&text))
}

/// A token, from 1.
pub fn read_token(text: &Str) -> Option<i64> {
    number(text.as_slice()).filter(|token| *token > 0)
}

/// What the shared-holders key says of a holder.
pub fn entry(holder: &Holder) -> Vec<u8> {
    let limit = holder.terms.limit.shown();
    format!("{} {limit} {}", holder.lease_end.millis(), holder.token).into_bytes()
}

/// Reads an entry; `None` if the text is not one.
pub fn read_entry(text: &[u8]) -> Option<Holder> {
    let mut words = text.split(|byte| *byte == b' ').map(number);
    let mut next = || {
        words
            .next()
            .flatten()
            .and_then(|word| u64::try_from(word).ok())
    };
    let (lease_end, limit, token) = (next()?, next()?, next()?);
    let lease_end = Wall::of(lease_end);
    let limit = Limit::read(u32::try_from(limit).ok()?);
    let token = i64::try_from(token).ok()?;
    let is_all = words.next().is_none();
    let terms = Terms {
        limit,
        ..Terms::UNKNOWN
    };
    is_all.then(|| Holder::new(terms, lease_end, token, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_of_a_holder_is_read_again() {
        for limit in [
            Limit::NONE,
            Limit::read(1),
            Limit::read(7),
            Limit::read(1_000_000),
        ] {
            let terms = Terms {
                limit,
                ..Terms::UNKNOWN
            };
            let holder = Holder::new(
                terms,
                Wall::of(1_795_222_021_229),
                1_795_222_021_229_276,
                None,
            );
            assert_eq!(read_entry(&entry(&holder)), Some(holder));
        }
        for text in [
            "",
            "1",
            "1 2",
            "1 2 3 4",
            "1  3",
            "x 0 1",
            "-1 0 1",
            "1 -1 1",
            "1 4294967296 1",
        ] {
            assert_eq!(read_entry(text.as_bytes()), None, "{text}");
        }
    }
}
