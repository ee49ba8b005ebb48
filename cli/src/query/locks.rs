//! `fairlock locks`: the locks that are held, each on a line.
//!
//! They are printed as they are found. A search of many keys takes its time, and what is printed first may have
//! changed when it is over.

use crate::args::LocksArgs;
use crate::failure::{Failure, UNAVAILABLE};
use crate::server::{Masters, Target, Trouble};
use crate::shown::{line, matches, object};

use super::print;

/// Lists the locks of all masters; the exit code.
pub async fn run(args: &LocksArgs, target: Target) -> Result<u8, Failure> {
    let mut masters = Masters::new(target);
    let mut code = 0;
    for master in masters.current().await? {
        if let Err(trouble) = list(args, master).await? {
            // The others are asked all the same.
            eprintln!("fairlock: {}", trouble.text());
            code = UNAVAILABLE;
        }
    }
    Ok(code)
}

/// Prints one server's locks, or says why the server does not tell them.
async fn list(args: &LocksArgs, target: &Target) -> Result<Result<(), Trouble>, Failure> {
    let (node, filter) = (target.address(), args.filter.to_lowercase());
    let mut listing = match target.connect().await {
        Ok(link) => link.locks(!args.busy),
        Err(trouble) => return Ok(Err(trouble)),
    };
    loop {
        let locks = match listing.next().await {
            Ok(Some(locks)) => locks,
            Ok(None) => return Ok(Ok(())),
            Err(trouble) => return Ok(Err(trouble)),
        };
        for lock in locks.iter().filter(|lock| matches(lock, &filter)) {
            print(&if args.json {
                object(lock, &node).to_string()
            } else {
                line(lock, &node)
            })?;
        }
    }
}
