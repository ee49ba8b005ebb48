//! `fairlock break`: takes a lock away from its holders, and prints the former holder and the new one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use serde::Serialize;

use crate::args::BreakArgs;
use crate::failure::Failure;
use crate::lock::Lock;
use crate::server::{Masters, Target, Trouble};
use crate::text::{escape, quote};

use super::print;

/// What has happened.
#[derive(Debug, Serialize)]
struct Broken {
    key: String,
    /// Whether there was anything to free.
    freed: bool,
    /// The former holder; of several the first, or the one that was named.
    was: Option<String>,
    /// The new holder: the next waiter, if there was one.
    is: Option<String>,
}

impl Broken {
    fn new(key: &[u8], freed: bool, was: Option<&[u8]>, is: &Lock) -> Self {
        Self {
            key: escape(key),
            freed,
            was: was.filter(|_| freed).map(escape),
            is: is.owner.as_deref().map(escape),
        }
    }

    fn line(&self) -> String {
        let key = quote(&self.key);
        let was = match (&self.was, self.freed) {
            (Some(was), true) => format!("{key} was held by {}", quote(was)),
            (None, true) => format!("{key} was held"),
            (_, false) => format!("{key} was not held"),
        };
        match &self.is {
            Some(is) => format!("{was}; it is held by {} now", quote(is)),
            None => format!("{was}; it is free now"),
        }
    }
}

/// Frees the lock; the exit code.
pub async fn run(args: BreakArgs, target: Target) -> Result<u8, Failure> {
    let key = args.key.into_vec();
    let owner = args.owner.map(OsString::into_vec);
    let broken = free(&key, owner.as_deref(), args.force, target).await;
    let broken = broken.map_err(Trouble::into_failure)?;
    print(args.json, &broken, || broken.line())?;
    Ok(0)
}

async fn free(
    key: &[u8],
    owner: Option<&[u8]>,
    force: bool,
    target: Target,
) -> Result<Broken, Trouble> {
    let mut server = Masters::new(target).connect_for(key).await?;
    let before = server.lock(key).await?;
    let freed = server.break_lock(key, owner, force).await?;
    let after = server.lock(key).await?;
    let was = owner.or(before.owner.as_deref());
    Ok(Broken::new(key, freed, was, &after))
}
