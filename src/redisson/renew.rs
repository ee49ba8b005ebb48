//! The scripts that renew leases.

use crate::server::string;

use super::keys::{hash, lease};
use super::run::{Call, LeftToLua, Reply};

/// One such script. Keys: locks. Arguments: lease, and an owner for each lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renew {
    /// One lock; replies 1 or 0.
    One,
    /// Many locks; replies as many numbers.
    Many,
}

impl Renew {
    pub fn run(self, call: &Call<'_>) -> Result<Reply, LeftToLua> {
        let lease_time = call.duration(0)?;
        let mut renewed = Vec::with_capacity(call.keys.len());
        for index in 0..call.keys.len() {
            let mut lock = hash(call, index)?;
            let owner = string(call.argument(index + 1)?);
            let held = lock.hash_get(&owner).is_some();
            if held {
                lease(&mut lock, lease_time);
            }
            renewed.push(i64::from(held));
        }
        match self {
            Self::One => Ok(Reply::Number(renewed.first().copied().unwrap_or(0))),
            Self::Many => Ok(Reply::Numbers(renewed)),
        }
    }
}
