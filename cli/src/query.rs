//! One question to the servers, and its answer on standard output.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;

use crate::args::{BreakArgs, InfoArgs, LocksArgs};
use crate::failure::{Failure, UNAVAILABLE, tell};
use crate::lock::Lock;
use crate::server::{Masters, Target};
use crate::shown::print;
use crate::text::word;

/// Lists the locks of all masters; the exit code.
///
/// They are printed as they are found. A search of many keys takes its time, and what is printed first may have changed
/// when it is over.
pub async fn locks(args: &LocksArgs, target: Target) -> Result<u8, Failure> {
    let mut masters = Masters::new(target);
    let mut code = 0;
    for master in masters.current().await? {
        match list(args, master).await {
            // The others are asked all the same.
            Err(failure) if failure.code == UNAVAILABLE => {
                tell(failure.text);
                code = UNAVAILABLE;
            }
            listed => listed?,
        }
    }
    Ok(code)
}

/// Prints one server's locks, each once.
async fn list(args: &LocksArgs, target: &Target) -> Result<(), Failure> {
    let (mut link, node) = (target.connect().await?, target.address());
    let mut met = HashSet::new();
    let mut show = |locks: Vec<Lock>| {
        let mut new = locks.iter().filter(|lock| met.insert(lock.name.clone()));
        new.try_for_each(|lock| print(lock, &node, args.json))
    };
    let mut after = Some(0);
    while let Some(cursor) = after {
        let (locks, more) = link.tracked(cursor).await?;
        show(locks)?;
        after = more;
    }
    if args.busy {
        return Ok(());
    }
    let mut cursor = 0;
    loop {
        let (locks, next) = link.held(cursor).await?;
        show(locks)?;
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

/// Shows a lock as it is for each of its holders; the exit code.
pub async fn info(args: InfoArgs, target: Target) -> Result<u8, Failure> {
    let name = args.key.into_vec();
    let (mut server, lock) = Masters::new(target).connect_for(&name).await?;
    let (holders, node) = (server.holders(&name).await?, server.target.address());
    // For how long it is held is not said.
    let held = -1;
    let lock = Lock { name, held, ..lock };
    if holders.is_empty() {
        print(&lock, &node, args.json)?;
    }
    for holder in holders {
        let Lock {
            name,
            waiting,
            next,
            holders,
            ..
        } = lock.clone();
        let holder = Lock {
            name,
            waiting,
            next,
            holders,
            held,
            ..holder
        };
        print(&holder, &node, args.json)?;
    }
    Ok(0)
}

/// Frees a lock, and prints the former holder and the new one; the exit code.
pub async fn break_lock(args: BreakArgs, target: Target) -> Result<u8, Failure> {
    let (key, owner) = (args.key.into_vec(), args.owner.map(OsString::into_vec));
    let (mut server, before) = Masters::new(target).connect_for(&key).await?;
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
    writeln!(io::stdout(), "{} {was}; it is {is} now", word(&key))?;
    Ok(0)
}
