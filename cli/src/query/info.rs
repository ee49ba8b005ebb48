//! `fairlock info`: one lock with all its holders.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt as _;

use serde_json::{Value, json};

use crate::args::InfoArgs;
use crate::failure::Failure;
use crate::lock::Lock;
use crate::server::{Masters, Target};
use crate::shown::{known, lease, limited, name, token, yes};
use crate::text::{escape, word};

use super::print;

/// Shows a lock; the exit code.
pub async fn run(args: InfoArgs, target: Target) -> Result<u8, Failure> {
    let key = args.key.into_vec();
    let mut server = Masters::new(target).connect_for(&key).await?;
    let found = Found {
        lock: server.lock(&key).await?,
        holders: server.holders(&key).await?,
        node: server.target.address(),
        key,
    };
    print(&if args.json {
        found.object().to_string()
    } else {
        found.lines()
    })?;
    Ok(0)
}

/// A lock.
struct Found {
    key: Vec<u8>,
    node: String,
    lock: Lock,
    /// The lock as it is for each of its holders.
    holders: Vec<Lock>,
}

impl Found {
    fn object(&self) -> Value {
        let holder = |holder: &Lock| {
            json!({
                "owner": holder.owner.as_deref().map(escape),
                "holds": holder.holds,
                "lease_ms": known(holder.lease),
                "token": holder.token,
                "session": holder.session,
                "limit": limited(holder.limit),
            })
        };
        json!({
            "name": escape(&self.key),
            "node": self.node,
            "holders": self.holders.iter().map(holder).collect::<Vec<_>>(),
            "waiting": self.lock.waiting,
            "next": self.lock.next.as_deref().map(escape),
        })
    }

    fn lines(&self) -> String {
        let mut text = format!("lock     {}\n", word(&self.key));
        if self.holders.is_empty() {
            text.push_str("holder   (free)\n");
        }
        for holder in &self.holders {
            let limit = match holder.limit {
                1 => String::new(),
                0 => " limit=none".to_owned(),
                limit => format!(" limit={limit}"),
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "holder   {} holds={} lease={} token={} session={}{limit}",
                name(holder.owner.as_deref()),
                holder.holds,
                lease(holder.lease),
                token(holder.token),
                yes(holder.session),
            );
        }
        let (waiting, next) = (self.lock.waiting, name(self.lock.next.as_deref()));
        text + &format!(
            "waiting  {waiting}\nnext     {next}\nnode     {}",
            self.node
        )
    }
}
