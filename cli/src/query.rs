//! One question to the servers, and its answer on standard output.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;

use serde_json::{Value, json};

use crate::args::{BreakArgs, InfoArgs, LocksArgs};
use crate::failure::{Failure, UNAVAILABLE, tell};
use crate::lock::Lock;
use crate::server::{Masters, Target};
use crate::shown::{known, lease, limited, line, matches, name, object, or_dash, yes};
use crate::text::{escape, word};

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
    let filter = args.filter.to_lowercase();
    let mut met = HashSet::new();
    let mut show = |locks: Vec<Lock>| {
        let mut new = locks.iter().filter(|lock| met.insert(lock.name.clone()));
        new.try_for_each(|lock| match matches(lock, &filter) {
            true if args.json => print(&object(lock, &node).to_string()),
            true => print(&line(lock, &node)),
            false => Ok(()),
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

/// Shows a lock with all its holders; the exit code.
pub async fn info(args: InfoArgs, target: Target) -> Result<u8, Failure> {
    let key = args.key.into_vec();
    let (mut server, lock) = Masters::new(target).connect_for(&key).await?;
    let (holders, node) = (server.holders(&key).await?, server.target.address());
    if args.json {
        let object = json!({
            "name": escape(&key),
            "node": node,
            "holders": holders.iter().map(holder_object).collect::<Vec<_>>(),
            "waiting": lock.waiting,
            "next": lock.next.as_deref().map(escape),
        });
        print(&object.to_string())?;
        return Ok(0);
    }
    let mut lines = vec![format!("lock     {}", word(&key))];
    if holders.is_empty() {
        lines.push("holder   (free)".to_owned());
    }
    lines.extend(holders.iter().map(holder_line));
    lines.push(format!("waiting  {}", lock.waiting));
    lines.push(format!("next     {}", name(lock.next.as_deref())));
    lines.push(format!("node     {node}"));
    print(&lines.join("\n"))?;
    Ok(0)
}

fn holder_object(holder: &Lock) -> Value {
    json!({
        "owner": holder.owner.as_deref().map(escape),
        "holds": holder.holds,
        "lease_ms": known(holder.lease),
        "token": holder.token,
        "session": holder.session,
        "limit": limited(holder.limit),
    })
}

fn holder_line(holder: &Lock) -> String {
    let limit = match holder.limit {
        1 => String::new(),
        0 => " limit=none".to_owned(),
        limit => format!(" limit={limit}"),
    };
    format!(
        "holder   {} holds={} lease={} token={} session={}{limit}",
        name(holder.owner.as_deref()),
        holder.holds,
        lease(holder.lease),
        or_dash(holder.token),
        yes(holder.session),
    )
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
    let named = owner.or(before.owner.filter(|_| freed));
    let by = named.map_or_else(String::new, |owner| format!(" by {}", word(&owner)));
    let not = if freed { "" } else { "not " };
    let is = match &after.owner {
        Some(is) => format!("held by {}", word(is)),
        None => "free".to_owned(),
    };
    print(&format!("{} was {not}held{by}; it is {is} now", word(&key)))?;
    Ok(0)
}

fn print(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}
