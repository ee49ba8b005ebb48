//! Whether anybody is told of the module's key events: clients, if the option `notify-keyspace-events` says
//! so, or another module. For each event the server makes a client for every module that listens, even for the one
//! that has raised it. A hand-off has ten events, and is cheaper without them.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::RedisValue;

use super::api::{api, raw};
use super::context::text;
use super::events::listen;
use super::{Ctx, guard};

/// Modules that come with some servers, and have nothing to do with locks: Redis 8 has vector sets, Valkey 9 its
/// scripting engine.
const BUILT_IN: [&[u8]; 2] = [b"vectorset", b"lua"];

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
    OTHERS.store(!is_told || ctx.may_have_others(), Ordering::Relaxed);
}

fn may_listen(module: &[u8]) -> bool {
    module != b"fairlock" && !BUILT_IN.contains(&module)
}

impl Ctx {
    /// Whether modules are loaded that may listen to key events, or the server does not say. This one is not in the
    /// server's list before it is loaded.
    fn may_have_others(&self) -> bool {
        let modules = redis_module::Context::new(self.raw).call("MODULE", &["LIST"]);
        let Ok(RedisValue::Array(modules)) = modules else {
            return true;
        };
        modules
            .iter()
            .any(|module| name(module).is_none_or(may_listen))
    }
}

/// The name of a module in the server's list, where each is a list of fields and their values.
fn name(module: &RedisValue) -> Option<&[u8]> {
    let RedisValue::Array(fields) = module else {
        return None;
    };
    let at = fields
        .iter()
        .position(|field| text(field) == Some(b"name"))?;
    text(fields.get(at + 1)?)
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
        if name.is_none_or(|name| may_listen(name.to_bytes())) {
            OTHERS.store(true, Ordering::Relaxed);
        }
    });
}
