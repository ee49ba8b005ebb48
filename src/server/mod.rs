//! The only room that says `unsafe`: safe wrappers of the server's module API.
//!
//! `redis-module` brings strings, configuration and the module's entry; what its safe half lacks
//! (lists, sorted sets, blocking with time-out and disconnect, replication without copies, the event
//! loop) is wrapped here once. `api.h` lists all that is used of the server's interface. Every call
//! into the module that the server makes runs under [`guard`], so that a panic ends in a log line
//! and an error reply, never in the server.
//!
//! Everything here runs on the server's main thread; none of these types is `Send`.

#![allow(unsafe_code)]

mod alloc;
mod announce;
mod api;
pub mod block;
pub mod clock;
pub mod cluster;
pub mod command;
mod context;
pub mod docs;
pub mod events;
pub mod filter;
pub mod info;
mod key;
pub mod migration;
mod needs;
pub mod nodes;
mod pause;
pub mod scan;
pub mod selected;
pub mod timer;
pub mod user;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

pub use alloc::{ServerAlloc, is_aligned};
pub use api::find_functions;
pub use command::{Args, Command};
pub use context::{Ctx, Flags, INTERNAL_ERROR, in_cluster};
pub use key::{Access, Key, Kind};
pub use redis_module::RedisString as Str;

/// A server string with these bytes.
#[must_use]
pub fn string(bytes: &[u8]) -> Str {
    Str::create_from_slice(null_mut(), bytes)
}

/// A server string with a number in decimal digits. The server would count the digits first, which
/// takes as long again.
#[must_use]
pub fn decimal(number: i64) -> Str {
    let mut room = [0; MOST_DIGITS];
    string(digits(number, &mut room))
}

/// As many as a number of 64 bits has, and its sign.
const MOST_DIGITS: usize = 20;

/// All numbers of two digits, as text.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut rest: &mut [[u8; 2]] = &mut pairs;
    let mut number = 0;
    while let [pair, others @ ..] = rest {
        *pair = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
        rest = others;
    }
    pairs
};

/// Writes a number at the end of the room.
fn digits(number: i64, room: &mut [u8; MOST_DIGITS]) -> &[u8] {
    let mut rest = number.unsigned_abs();
    let mut start = room.len();
    for place in room.rchunks_exact_mut(2) {
        let [low, ..] = (rest % 100).to_le_bytes();
        let pair = PAIRS.get(usize::from(low)).copied().unwrap_or_default();
        place.copy_from_slice(&pair);
        start -= 2;
        rest /= 100;
        if rest == 0 {
            start += usize::from(low < 10);
            break;
        }
    }
    if number < 0
        && let Some(before) = start.checked_sub(1)
        && let Some(place) = room.get_mut(before)
    {
        *place = b'-';
        start = before;
    }
    room.get(start..).unwrap_or_default()
}

/// The same string of the server, not a copy.
#[must_use]
pub fn share(string: &Str) -> Str {
    Str::new(None, string.inner)
}

/// Takes note of what does not change while the server runs, and forgets what an earlier load of the
/// module may have left: the module's code and state stay where they are when it is unloaded.
pub fn start_afresh(ctx: &Ctx) {
    context::remember_server(ctx);
    nodes::start_afresh();
    selected::start_afresh();
}

/// Runs a callback of the server; a panic in it is logged and becomes `None`.
fn guard<T>(what: &str, body: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(body));
    if result.is_err() {
        // Without the call's own context, which may be what went wrong.
        let nobody = Ctx::new(null_mut());
        nobody.log_warning(&format!(
            "fairlock: panic in {what}; please report this as a bug"
        ));
    }
    result.ok()
}

/// Sets the options that were made known from the configuration file. False if the server refuses
/// a value.
#[must_use]
pub fn load_configuration(context: &redis_module::Context) -> bool {
    // SAFETY: the context is that of the module's initialisation, as LoadConfigs requires.
    unsafe { api::api!(LoadConfigs(context.ctx)) == 0 }
}

#[cfg(test)]
mod tests {
    use super::{MOST_DIGITS, digits};

    #[test]
    fn numbers_are_written_as_everywhere() {
        for number in [
            0,
            7,
            10,
            42,
            100,
            -1,
            -10,
            1_700_000_000_000,
            i64::MAX,
            i64::MIN,
        ] {
            let mut room = [0; MOST_DIGITS];
            let written = String::from_utf8_lossy(digits(number, &mut room)).into_owned();
            assert_eq!(written, number.to_string());
        }
    }
}
