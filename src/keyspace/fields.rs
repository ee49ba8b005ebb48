//! The fields of a lock's hash: the owners' hold counts, and the token.

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

/// The token in the lock's hash.
pub fn token_of(lock: &Key<'_>) -> Option<i64> {
    TOKEN
        .with(|field| lock.hash_get(field))
        .and_then(|text| read_token(&text))
}

/// A token, from 1.
pub fn read_token(text: &Str) -> Option<i64> {
    number(text.as_slice()).filter(|token| *token > 0)
}
