//! The module's section of INFO, and what the server says of itself in its own.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::ptr::null_mut;

use super::api::{api, raw};
use super::context::Ctx;
use super::guard::guard;

/// The section being written.
pub struct Section {
    raw: *mut raw::RedisModuleInfoCtx,
}

thread_local! {
    static WRITER: Cell<Option<fn(&mut Section)>> = const { Cell::new(None) };
}

/// Registers the function that writes the module's section of INFO. False if the server refuses.
pub fn register(ctx: &Ctx, writer: fn(&mut Section)) -> bool {
    WRITER.set(Some(writer));
    raw::register_info_function(ctx.raw, Some(write)) == raw::Status::Ok
}

/// A field of one of the server's own sections. Not free: the server writes the whole section for it.
pub fn field_of(section: &CStr, field: &CStr) -> Option<String> {
    // SAFETY: both names end with a null. The data is null, or freed here; the text in it ends with a
    // null, and is copied before.
    unsafe {
        let data = api!(GetServerInfo(null_mut(), section.as_ptr()));
        if data.is_null() {
            return None;
        }
        let text = api!(ServerInfoGetFieldC(data, field.as_ptr()));
        let text = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        api!(FreeServerInfo(null_mut(), data));
        text
    }
}

impl Section {
    /// Adds a line; the server puts the module's name before the field's.
    pub fn number(&mut self, field: &str, value: u64) {
        raw::add_info_field_unsigned_long_long(self.raw, field, value);
    }
}

extern "C" fn write(info: *mut raw::RedisModuleInfoCtx, _crashed: c_int) {
    // None on other threads: the report of a crash is written by the thread that crashed.
    let Some(writer) = WRITER.get() else { return };
    // Without a name of its own the section is named like the module.
    if raw::add_info_section(info, None) == raw::Status::Ok {
        guard("INFO", || writer(&mut Section { raw: info }));
    }
}
