//! `fairlock info`: one lock with all its holders, or what the servers say of themselves.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt as _;

use serde_json::{Map, Value, json};

use crate::args::InfoArgs;
use crate::failure::{Failure, UNAVAILABLE};
use crate::lock::Lock;
use crate::server::{Answer, Info, Link, Masters, Target, Trouble};
use crate::shown::{known, lease, limited, name, token, yes};
use crate::text::{escape, word};

use super::print;

/// Shows a lock, or the servers; the exit code.
pub async fn run(args: InfoArgs, target: Target) -> Result<u8, Failure> {
    match args.key {
        Some(key) => {
            let found = Found::of(key.into_vec(), target).await;
            let found = found.map_err(Trouble::into_failure)?;
            print(args.json, || found.object(), || found.lines())?;
            Ok(0)
        }
        None => servers(args.json, target).await,
    }
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
    async fn of(key: Vec<u8>, target: Target) -> Result<Self, Trouble> {
        let mut server = Masters::new(target).connect_for(&key).await?;
        let lock = server.lock(&key).await?;
        let holders = if lock.is_shared() {
            all_holders(&mut server, &key).await?
        } else {
            lock.owner.iter().map(|_| lock.clone()).collect()
        };
        let node = server.target.address();
        Ok(Self {
            key,
            node,
            lock,
            holders,
        })
    }

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

async fn all_holders(server: &mut Link, key: &[u8]) -> Result<Vec<Lock>, Trouble> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let some = server.holders(key, after.as_deref()).await?;
        all.extend(some.locks);
        after = some.more;
        if after.is_none() {
            return Ok(all);
        }
    }
}

async fn servers(json: bool, target: Target) -> Result<u8, Failure> {
    let answers = Masters::new(target).ask(Link::fairlock_info).await;
    let mut code = 0;
    for Answer { address, said } in answers.map_err(Trouble::into_failure)? {
        let error = said.as_ref().err().map(Trouble::text);
        if let Some(error) = &error {
            eprintln!("fairlock: {error}");
            code = UNAVAILABLE;
            if !json {
                continue;
            }
        }
        let info: Option<Info> = said.ok();
        let fields = || info.iter().flat_map(|info| &info.fields);
        let object = || {
            let all: Map<String, Value> = fields()
                .map(|(name, value)| (name.clone(), number_or_text(value)))
                .collect();
            json!({ "node": address, "error": error, "fields": all })
        };
        let lines = || {
            let lines = fields().map(|(name, value)| format!("\n  {name} {value}"));
            address.clone() + &lines.collect::<String>()
        };
        if !print(json, object, lines)? {
            break;
        }
    }
    Ok(code)
}

fn number_or_text(value: &str) -> Value {
    match value.parse::<u64>() {
        Ok(number) => number.into(),
        Err(_) => value.into(),
    }
}
