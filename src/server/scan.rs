//! Walking over all keys, a few at a time.

use std::ffi::c_void;

use super::api::{api, raw};
use super::{Ctx, Str, guard};

/// A walk over the keys of all databases. It can be put down between its steps: keys that are
/// there all the while are found at least once.
#[derive(Debug)]
pub struct KeyScan {
    cursor: *mut raw::RedisModuleScanCursor,
    db: i32,
}

/// The callback: gets a context with the database selected, and a key in it.
type Told<'a> = &'a mut dyn FnMut(&Ctx, &[u8]);

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
    pub fn step(&mut self, ctx: &Ctx, mut found: Told<'_>) -> bool {
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

extern "C" fn tell(
    ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    _key: *mut raw::RedisModuleKey,
    place: *mut c_void,
) {
    guard("a scan", || {
        // SAFETY: `place` is that of the function which `step` passed to the scan.
        let found = unsafe { &mut *place.cast::<Told<'_>>() };
        found(&Ctx::new(ctx), Str::string_as_slice(name));
    });
}
