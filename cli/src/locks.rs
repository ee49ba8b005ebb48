//! `fairlock locks`: all locks that are held.

use std::collections::HashSet;
use std::io::{self, Write as _};

use crate::args::LocksArgs;
use crate::failure::{Failure, UNAVAILABLE, tell};
use crate::lock::Lock;
use crate::server::{Masters, Target};
use crate::shown::{line, object};

/// Lists the locks of all masters; the exit code.
///
/// They are printed as they are found. A search of many keys takes its time, and what is printed first may have changed
/// when it is over.
pub async fn run(args: &LocksArgs, target: Target) -> Result<u8, Failure> {
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
        new.try_for_each(|lock| {
            let text = if args.json {
                object(lock, &node).to_string()
            } else {
                line(lock, &node)
            };
            writeln!(io::stdout(), "{text}")
        })
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
