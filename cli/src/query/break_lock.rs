//! `fairlock break`: takes a lock away from its holders, and prints the former holder and the new one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use crate::args::BreakArgs;
use crate::failure::Failure;
use crate::server::{Masters, Target};
use crate::text::word;

use super::print;

/// Frees the lock; the exit code.
pub async fn run(args: BreakArgs, target: Target) -> Result<u8, Failure> {
    let (key, owner) = (args.key.into_vec(), args.owner.map(OsString::into_vec));
    let mut server = Masters::new(target).connect_for(&key).await?;
    let before = server.lock(&key).await?;
    let freed = server
        .break_lock(&key, owner.as_deref(), args.force)
        .await?;
    let after = server.lock(&key).await?;
    // Of several holders the first, or the one that was named.
    let was = match owner.or(before.owner).filter(|_| freed) {
        Some(was) => format!("was held by {}", word(&was)),
        None => "was not held".to_owned(),
    };
    let is = match &after.owner {
        Some(is) => format!("held by {}", word(is)),
        None => "free".to_owned(),
    };
    print(&format!("{} {was}; it is {is} now", word(&key)))?;
    Ok(0)
}
