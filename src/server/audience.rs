//! Whether the module's key events have listeners: clients, if the option `notify-keyspace-events` says so, or another
//! module. For each event the server makes a client for every module that listens, even for the one that has raised it.
//! A hand-off has ten events, and is cheaper without them.

use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::RedisValue;

use super::api::api;
use super::context::{Ctx, text};

/// Whether other modules are loaded beside this one. Which events they listen to is not known.
static OTHERS: AtomicBool = AtomicBool::new(true);

/// Whether a key event has listeners besides this module.
pub(super) fn is_there() -> bool {
    // SAFETY: the function takes nothing and only reads an option.
    OTHERS.load(Ordering::Relaxed) || unsafe { api!(GetNotifyKeyspaceEvents()) } != 0
}

/// Looks for other modules: when the module is loaded, and when others come and go.
pub(super) fn look(ctx: &Ctx) {
    OTHERS.store(ctx.has_other_modules(), Ordering::Relaxed);
}

impl Ctx {
    /// Whether modules are loaded that may listen to key events, or the server does not say.
    fn has_other_modules(&self) -> bool {
        match redis_module::Context::new(self.raw).call("MODULE", &["LIST"]) {
            Ok(RedisValue::Array(modules)) => modules.iter().any(may_listen),
            _ => true,
        }
    }
}

/// Whether a module in the server's list is another one, and was loaded from a file: what comes with the server is not.
fn may_listen(module: &RedisValue) -> bool {
    let RedisValue::Array(fields) = module else {
        return true;
    };
    let value = |name: &[u8]| {
        let at = fields.iter().position(|field| text(field) == Some(name))?;
        text(fields.get(at + 1)?)
    };
    let is_of_a_file = value(b"path").is_none_or(|path| path.contains(&b'/'));
    is_of_a_file && value(b"name") != Some(b"fairlock")
}
