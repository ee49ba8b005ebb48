//! Walking over all keys, or over the fields of a hash, a few at a time.
//!
//! The module walks for itself with [`KeyScan`]. A walk that a client continues goes through the server's own SCAN
//! and HSCAN, whose cursors are numbers that the client can keep: so the module remembers nothing of it.

use std::ffi::c_void;

use redis_module::{Context, RedisValue};

use super::api::{api, raw};
use super::context::{Ctx, text};
use super::guard::guard;
use super::memory::Str;

/// A scan of the keys of all databases. It can be interrupted between its steps: keys that exist during
/// the whole scan are found at least once.
#[derive(Debug)]
pub struct KeyScan {
    cursor: *mut raw::RedisModuleScanCursor,
    db: i32,
}

/// The callback: gets a context with the database selected, and a key in it.
type Visit<'a> = &'a mut dyn FnMut(&Ctx, &[u8]);

impl Default for KeyScan {
    fn default() -> Self {
        // SAFETY: the function takes nothing; the cursor is destroyed when this is dropped.
        let cursor = unsafe { api!(ScanCursorCreate()) };
        Self { cursor, db: 0 }
    }
}

impl Drop for KeyScan {
    fn drop(&mut self) {
        // SAFETY: the cursor came from ScanCursorCreate and is destroyed once.
        unsafe { api!(ScanCursorDestroy(self.cursor)) };
    }
}

impl KeyScan {
    /// Looks at the next few keys; their database is selected then. False when it is through.
    pub fn step(&mut self, ctx: &Ctx, mut found: Visit<'_>) -> bool {
        if self.cursor.is_null() || !ctx.select_db(self.db) {
            return false;
        }
        let place = (&raw mut found).cast::<c_void>();
        // SAFETY: context and cursor are valid; the callback gets the place of `found`, which
        // outlives the call.
        let more = unsafe { api!(Scan(ctx.raw, self.cursor, Some(tell), place)) };
        if more == 0 {
            self.db += 1;
            // SAFETY: as above; a cursor that has come to its end begins anew.
            unsafe { api!(ScanCursorRestart(self.cursor)) };
        }
        true
    }
}

/// What a walk has found, and the cursor to go on with: 0 if it is through.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// The keys.
    pub items: Vec<Vec<u8>>,
    /// Where the walk goes on.
    pub next: u64,
}

impl Ctx {
    /// Some keys of the selected database that are hashes: of the next `count` keys or a few more. `None` if the
    /// server does not run SCAN, because its configuration has renamed the command.
    pub fn scan_hashes(&self, cursor: u64, count: usize) -> Option<Found> {
        let (cursor, count) = (cursor.to_string(), count.to_string());
        let words = [cursor.as_str(), "COUNT", &count, "TYPE", "hash"];
        found(Context::new(self.raw).call("SCAN", &words[..]).ok()?)
    }
}

/// The reply of SCAN: the next cursor, and what was found.
fn found(reply: RedisValue) -> Option<Found> {
    let RedisValue::Array(parts) = reply else {
        return None;
    };
    let [next, RedisValue::Array(items)] = parts.as_slice() else {
        return None;
    };
    let next = std::str::from_utf8(text(next)?).ok()?.parse().ok()?;
    let items = items.iter().filter_map(text).map(<[u8]>::to_vec);
    Some(Found {
        items: items.collect(),
        next,
    })
}

extern "C" fn tell(
    ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    _key: *mut raw::RedisModuleKey,
    place: *mut c_void,
) {
    guard("a scan", || {
        // SAFETY: `place` is that of the function which `step` passed to the scan.
        let found = unsafe { &mut *place.cast::<Visit<'_>>() };
        found(&Ctx::new(ctx), Str::string_as_slice(name));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_of_scan_is_a_cursor_and_what_was_found() {
        let bulk = |text: &str| RedisValue::BulkString(text.to_owned());
        let items = RedisValue::Array(vec![bulk("a"), RedisValue::StringBuffer(vec![0xff])]);
        let reply = |next: &str| RedisValue::Array(vec![bulk(next), items.clone()]);
        // A cursor uses all 64 bits.
        for next in [0, 17, u64::MAX] {
            let items = vec![b"a".to_vec(), vec![0xff]];
            assert_eq!(found(reply(&next.to_string())), Some(Found { items, next }));
        }
        for odd in [reply("x"), reply("-1"), bulk("0"), RedisValue::Null] {
            assert_eq!(found(odd), None);
        }
    }
}
