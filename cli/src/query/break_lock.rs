//! `fairlock break`: takes a lock away from its holders, and prints the former holder and the new one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use serde_json::json;

use crate::args::BreakArgs;
use crate::failure::Failure;
use crate::lock::Lock;
use crate::server::{Masters, Target, Trouble};
use crate::text::{escape, word};

use super::print;

/// Frees the lock; the exit code.
pub async fn run(args: BreakArgs, target: Target) -> Result<u8, Failure> {
    let (key, owner) = (args.key.into_vec(), args.owner.map(OsString::into_vec));
    let freed = free(&key, owner.as_deref(), args.force, target).await;
    let (freed, before, after) = freed.map_err(Trouble::into_failure)?;
    // Of several holders the first, or the one that was named.
    let was = owner.or(before.owner).filter(|_| freed);
    let object = || {
        let (was, is) = (
            was.as_deref().map(escape),
            after.owner.as_deref().map(escape),
        );
        json!({ "key": escape(&key), "freed": freed, "was": was, "is": is })
    };
    let line = || {
        let held = if freed { "was held" } else { "was not held" };
        let by = was.as_deref().map(|was| format!(" by {}", word(was)));
        let now = match &after.owner {
            Some(is) => format!("held by {}", word(is)),
            None => "free".to_owned(),
        };
        format!(
            "{} {held}{}; it is {now} now",
            word(&key),
            by.unwrap_or_default()
        )
    };
    print(args.json, object, line)?;
    Ok(0)
}

/// Whether there was anything to free, and the lock before and after.
async fn free(
    key: &[u8],
    owner: Option<&[u8]>,
    force: bool,
    target: Target,
) -> Result<(bool, Lock, Lock), Trouble> {
    let mut server = Masters::new(target).connect_for(key).await?;
    let before = server.lock(key).await?;
    let freed = server.break_lock(key, owner, force).await?;
    Ok((freed, before, server.lock(key).await?))
}
