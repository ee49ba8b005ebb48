//! `fairlock locks`: the locks that are held, each on a line.
//!
//! They are printed as they are found. A search of many keys takes its time, and what is printed first may have
//! changed when it is over.

use std::collections::HashSet;

use crate::args::LocksArgs;
use crate::failure::{Failure, UNAVAILABLE};
use crate::lock::Lock;
use crate::server::{Masters, Target, Trouble};
use crate::shown::{self, matches, object};

use super::print;

/// Locks that a server is asked for at once.
const PAGE: usize = 1000;

/// Why the rest of a server's locks is not printed.
enum Stop {
    Trouble(Trouble),
    Failure(Failure),
    /// The reader is gone.
    Unread,
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

/// Lists the locks of all masters; the exit code.
pub async fn run(args: &LocksArgs, target: Target) -> Result<u8, Failure> {
    let mut masters = Masters::new(target);
    let masters = masters.current().await.map_err(Trouble::into_failure)?;
    let mut code = 0;
    for master in masters {
        match list(args, master).await {
            Ok(()) => (),
            Err(Stop::Unread) => return Ok(0),
            Err(Stop::Failure(failure)) => return Err(failure),
            Err(Stop::Trouble(trouble)) => {
                // The others are asked all the same.
                eprintln!("fairlock: {}", trouble.text());
                code = UNAVAILABLE;
            }
        }
    }
    Ok(code)
}

/// Prints one server's locks.
async fn list(args: &LocksArgs, target: &Target) -> Result<(), Stop> {
    let (mut server, node) = (target.connect().await?, target.address());
    let filter = args.filter.to_lowercase();
    // A lock that gets a waiter during the search is met twice.
    let mut names = HashSet::new();
    let mut after = None;
    loop {
        let some = server.locks(!args.busy, PAGE, after.as_deref()).await?;
        for lock in &some.locks {
            if matches(lock, &filter) && names.insert(lock.name.clone()) {
                show(args, lock, &node)?;
            }
        }
        after = some.more;
        if after.is_none() {
            return Ok(());
        }
    }
}

fn show(args: &LocksArgs, lock: &Lock, node: &str) -> Result<(), Stop> {
    let line = || shown::line(lock, node);
    match print(args.json, || object(lock, node), line) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Stop::Unread),
        Err(failure) => Err(Stop::Failure(failure)),
    }
}
