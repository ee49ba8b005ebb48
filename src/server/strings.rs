//! Strings of the server.

use std::ptr::null_mut;

pub use redis_module::RedisString as Str;

/// A server string with these bytes.
pub fn string(bytes: &[u8]) -> Str {
    Str::create_from_slice(null_mut(), bytes)
}

/// A server string with a number in decimal digits. The server's own conversion takes twice as long,
/// because it counts the digits first.
pub fn decimal(number: i64) -> Str {
    string(itoa::Buffer::new().format(number).as_bytes())
}

/// The same string of the server, not a copy.
pub fn share(string: &Str) -> Str {
    Str::new(None, string.inner)
}
