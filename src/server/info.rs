//! The module's section of INFO.

use std::cell::Cell;
use std::ffi::{CString, c_int};

use redis_module::raw;

use super::api::{OK, api};
use super::{Ctx, guard};

/// The section being written.
#[derive(Debug)]
pub struct Section {
    raw: *mut raw::RedisModuleInfoCtx,
}

thread_local! {
    static WRITER: Cell<Option<fn(&mut Section)>> = const { Cell::new(None) };
}

/// Has the server call this function for INFO. False if it refuses.
#[must_use]
pub fn register(ctx: &Ctx, writer: fn(&mut Section)) -> bool {
    WRITER.set(Some(writer));
    // SAFETY: the callback has the signature that the server expects and lives as long as the
    // module.
    let status = unsafe { api!(RedisModule_RegisterInfoFunc(ctx.raw, Some(write)) or 1) };
    status == OK
}

impl Section {
    /// Adds a line; the server puts the module's name before the field's.
    pub fn number(&mut self, field: &str, value: u64) {
        let Ok(field) = CString::new(field) else {
            return;
        };
        // SAFETY: the server copies the name; the context is valid during the callback.
        unsafe { api!(RedisModule_InfoAddFieldULongLong(self.raw, field.as_ptr(), value) or 0) };
    }
}

extern "C" fn write(info: *mut raw::RedisModuleInfoCtx, _crashed: c_int) {
    let Some(writer) = WRITER.get() else { return };
    // SAFETY: an empty name makes the section that is named like the module; the context is
    // valid during the callback.
    let wanted = unsafe { api!(RedisModule_InfoAddSection(info, c"".as_ptr()) or 1) };
    if wanted == OK {
        guard("INFO", || writer(&mut Section { raw: info }));
    }
}
