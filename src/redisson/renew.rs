//! The scripts that renew leases.

use crate::keyspace::write;
use crate::server::{Access, Kind, clock, string};

use super::call::{LeftToLua, ScriptCall};

/// Does what the script does, once it is clear that it can be done for all locks. Keys: locks. Arguments: lease, and
/// an owner for each lock. Renewing a lock raises a key event, by which `waiting` learns of the new lease. Returns 1
/// for each that was renewed, and 0 for the others.
pub fn run(call: &ScriptCall<'_>) -> Result<Vec<i64>, LeftToLua> {
    let lease = call.duration(0)?;
    for index in 0..call.keys.len() {
        let key = call.key_name(index)?;
        call.argument(index + 1)?;
        if !call.ctx.open(&key, Access::Read).fits(Kind::Hash) {
            return Err(LeftToLua);
        }
    }
    let mut renewed = Vec::with_capacity(call.keys.len());
    for index in 0..call.keys.len() {
        let key = call.key_name(index)?;
        let mut lock = call.ctx.open(&key, Access::Write);
        let owner = string(call.argument(index + 1)?);
        let held = lock.hash_get(&owner).is_some();
        if held {
            let now = clock::wall_micros() / 1000;
            write::set_expiry(&mut lock, now.saturating_add(lease));
        }
        renewed.push(i64::from(held));
    }
    Ok(renewed)
}
