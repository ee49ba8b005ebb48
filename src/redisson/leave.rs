//! The scripts by which a waiter leaves the queue. They differ in whose scores they lessen, and natively
//! scores stay as they are.

use crate::keyspace::names;
use crate::server::{Access, string};

use super::run::{Call, LeftToLua};

/// One such script. Keys: queue, scores. Arguments: owner, and since 3.5.5 the wait to subtract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave;

impl Leave {
    /// Which argument is the owner.
    pub const OWNER: usize = 0;

    /// Reads a call: the owner that leaves.
    pub fn read<'c>(call: &Call<'c>) -> Result<&'c [u8], LeftToLua> {
        if call.arguments > 1 {
            call.millis(1)?;
        }
        call.argument(Self::OWNER)
    }

    /// The lock whose queue the owner leaves: the script is not told. Where two locks have the queue
    /// in common, it is that which is held.
    pub fn lock<'c>(call: &Call<'c>) -> Result<&'c [u8], LeftToLua> {
        let [plain, braced] = names::locks_of(call.key(0)?).ok_or(LeftToLua)?;
        let is_held = |lock: &[u8]| !call.ctx.open(&string(lock), Access::Read).is_empty();
        match (plain, braced) {
            (Some(plain), Some(braced)) if is_held(braced) && !is_held(plain) => Ok(braced),
            (Some(lock), _) | (None, Some(lock)) => Ok(lock),
            (None, None) => Err(LeftToLua),
        }
    }
}
