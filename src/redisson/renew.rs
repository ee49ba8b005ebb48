//! The scripts that renew leases.

use crate::server::{Key, string};

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
        let locks: Result<Vec<Key<'_>>, _> = (0..call.keys.len())
            .map(|index| hash(call, index))
            .collect();
        let mut renewed = Vec::with_capacity(call.keys.len());
        for (index, mut lock) in locks?.into_iter().enumerate() {
            let owner = string(call.argument(index + 1)?);
            let held = lock.hash_get(&owner).is_some();
            if held {
                lease(call, index, &mut lock, lease_time)?;
            }
            renewed.push(i64::from(held));
        }
        match self {
            Self::One => Ok(Reply::Number(renewed.first().copied().unwrap_or(0))),
            Self::Many => Ok(Reply::Numbers(renewed)),
        }
    }
}
