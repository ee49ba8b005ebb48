//! The module's section of INFO, and what the server says of itself in its own.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int};
use std::ptr::null_mut;

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

impl Ctx {
    /// A field of a section of the server's own, if it has that. Not free: the section is written for it.
    #[must_use]
    pub fn info(&self, section: &CStr, field: &CStr) -> Option<String> {
        // SAFETY: both names end with a null. The data is null or ours to free; the text in it ends with a
        // null, and is copied before that.
        unsafe {
            let data = api!(RedisModule_GetServerInfo(null_mut(), section.as_ptr()) or null_mut());
            if data.is_null() {
                return None;
            }
            let text =
                api!(RedisModule_ServerInfoGetFieldC(data, field.as_ptr()) or std::ptr::null());
            let text =
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
            api!(RedisModule_FreeServerInfo(null_mut(), data) or ());
            text
        }
    }
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
