//! The scripts that renew leases.

use crate::keyspace::fields::{hold_count, token_of};
use crate::keyspace::write;
use crate::server::{Access, Kind, clock, string};

use super::call::{LeftToLua, ScriptCall};

/// Does what the script does, once it is clear that it can be done for all locks. Keys: locks. Arguments: lease, and
/// an owner for each lock. Renewing a lock raises a key event, by which `waiting` learns of the new lease. Returns 1
/// for each that was renewed, and 0 for the others.
pub fn run(call: &ScriptCall<'_>) -> Result<Vec<i64>, LeftToLua> {
    let lease = call.duration(0)?;
    let held = (0..call.keys.len()).map(|index| is_held(call, index));
    let held = held.collect::<Result<Vec<bool>, LeftToLua>>()?;
    for (index, held) in held.iter().enumerate() {
        if *held {
            let key = call.key_name(index)?;
            let now = clock::wall_micros() / 1000;
            let mut lock = call.ctx.open(&key, Access::Write);
            write::set_expiry(&mut lock, now.saturating_add(lease));
        }
    }
    Ok(held.into_iter().map(i64::from).collect())
}

/// Whether a lock is held by its owner of this call. A hash that is no lock is left to the script.
fn is_held(call: &ScriptCall<'_>, index: usize) -> Result<bool, LeftToLua> {
    let key = call.key_name(index)?;
    let owner = string(call.argument(index + 1)?);
    let lock = call.ctx.open(&key, Access::Read);
    if !lock.fits(Kind::Hash) {
        return Err(LeftToLua);
    }
    let Some(holds) = lock.hash_get(&owner) else {
        return Ok(false);
    };
    let is_lock = hold_count(&holds).is_some() && (lock.len() == 1 || token_of(&lock).is_some());
    is_lock.then_some(true).ok_or(LeftToLua)
}
