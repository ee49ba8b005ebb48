//! The scripts by which a waiter leaves the queue. As Lua they differ in which waiters' scores they lower; natively
//! no score changes.

use crate::keyspace::names;
use crate::server::{Access, string};

use super::call::{LeftToLua, ScriptCall};

/// Which argument is the owner. Keys: queue, scores. Arguments: owner, and since 3.5.5 the wait to subtract.
pub const OWNER: usize = 0;

/// Reads a call: the owner that leaves.
pub fn read<'c>(call: &ScriptCall<'c>) -> Result<&'c [u8], LeftToLua> {
    if call.arguments.len() > 1 {
        call.millis(1)?;
    }
    call.argument(OWNER)
}

/// The lock whose queue the owner leaves. It is not among the script's keys, so the server has not checked whether the
/// user may change it. If two locks share the queue, it is the lock that is held.
pub fn lock<'c>(call: &ScriptCall<'c>) -> Result<&'c [u8], LeftToLua> {
    let [plain, braced] = names::locks_of(call.key(0)?).ok_or(LeftToLua)?;
    let is_held = |lock: &[u8]| !call.ctx.open(&string(lock), Access::Read).is_empty();
    match (plain, braced) {
        (Some(plain), Some(braced)) if is_held(braced) && !is_held(plain) => Ok(braced),
        (Some(lock), _) | (None, Some(lock)) => Ok(lock),
        (None, None) => Err(LeftToLua),
    }
}
