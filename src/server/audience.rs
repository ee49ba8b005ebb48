//! Whether anybody is told of the module's key events: clients, if the option `notify-keyspace-events` says
//! so, or another module. The server makes a client of its own for each module that it tells of an event, also for the
//! module that has raised it, so a hand-off is cheaper without its ten events.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::api::{api, raw};
use super::events::listen;
use super::{Ctx, guard};

/// Whether other modules are, or have been, loaded beside this one. Which events they listen to is not known.
static OTHERS: AtomicBool = AtomicBool::new(true);

/// Whether a key event would be told to anybody but this module.
pub(super) fn is_there() -> bool {
    // SAFETY: the function takes nothing and only reads an option.
    OTHERS.load(Ordering::Relaxed) || unsafe { api!(GetNotifyKeyspaceEvents()) } != 0
}

/// Looks for other modules, and hears of those that are loaded later.
pub(super) fn start_afresh(ctx: &Ctx) {
    let is_told = listen(ctx, raw::REDISMODULE_EVENT_MODULE_CHANGE, module_change);
    OTHERS.store(!is_told || ctx.has_modules(), Ordering::Relaxed);
}

impl Ctx {
    /// Whether the server has loaded modules, or does not say. This one counts only once it is loaded.
    fn has_modules(&self) -> bool {
        // SAFETY: the format says: one C string, which is static. The reply is freed, and is null where the
        // command was not run.
        unsafe {
            let (name, format) = (c"MODULE".as_ptr(), c"c".as_ptr());
            let reply = api!(Call(self.raw, name, format, c"LIST".as_ptr()));
            if reply.is_null() {
                return true;
            }
            let has_modules = api!(CallReplyLength(reply)) > 0;
            api!(FreeCallReply(reply));
            has_modules
        }
    }
}

extern "C" fn module_change(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    if subevent != raw::REDISMODULE_SUBEVENT_MODULE_LOADED {
        return;
    }
    guard("a module that is loaded", || {
        // SAFETY: this event comes with the module's name in version 1, as was asked for: a C string that outlives
        // this call.
        let name = unsafe {
            let change = data.cast::<raw::RedisModuleModuleChange>().as_ref();
            change.map(|change| CStr::from_ptr(change.module_name))
        };
        if name != Some(c"fairlock") {
            OTHERS.store(true, Ordering::Relaxed);
        }
    });
}
