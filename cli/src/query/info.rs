//! `fairlock info`: one lock with all its holders, or what the servers say of themselves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt as _;

use serde::Serialize;

use crate::args::InfoArgs;
use crate::failure::{Failure, UNAVAILABLE};
use crate::lock::Lock;
use crate::server::{Answer, Link, Masters, Target, Trouble};
use crate::shown::{known, lease, limited, token, yes};
use crate::text::{escape, quote};

use super::print;

/// Shows a lock, or the servers; the exit code.
pub async fn run(args: InfoArgs, target: Target) -> Result<u8, Failure> {
    match args.key {
        Some(key) => {
            let found = about(&key.into_vec(), target).await;
            let found = found.map_err(Trouble::into_failure)?;
            print(args.json, &found, || found.lines())?;
            Ok(0)
        }
        None => servers(args.json, target).await,
    }
}

/// One holder.
#[derive(Debug, Serialize)]
struct Holder {
    owner: String,
    holds: i64,
    /// Milliseconds; null if it has no end.
    lease_ms: Option<i64>,
    token: Option<i64>,
    session: bool,
    /// How many holders it tolerates: 1 if it holds the lock alone; null if any number.
    limit: Option<i64>,
}

impl Holder {
    fn new(lock: &Lock) -> Self {
        Self {
            owner: escape(lock.owner.as_deref().unwrap_or_default()),
            holds: lock.holds,
            lease_ms: known(lock.lease),
            token: lock.token,
            session: lock.session,
            limit: limited(lock.limit),
        }
    }

    fn line(&self) -> String {
        let limit = match self.limit {
            Some(1) => String::new(),
            Some(limit) => format!(" limit={limit}"),
            None => " limit=none".to_owned(),
        };
        format!(
            "{} holds={} lease={} token={} session={}{limit}",
            quote(&self.owner),
            self.holds,
            lease(self.lease_ms.unwrap_or(-1)),
            token(self.token),
            yes(self.session),
        )
    }
}

/// A lock.
#[derive(Debug, Serialize)]
struct Found {
    name: String,
    node: String,
    holders: Vec<Holder>,
    waiting: i64,
    next: Option<String>,
}

impl Found {
    fn lines(&self) -> String {
        let mut text = format!("lock     {}\n", quote(&self.name));
        if self.holders.is_empty() {
            text.push_str("holder   (free)\n");
        }
        for holder in &self.holders {
            // Writing to a string does not fail.
            let _ = writeln!(text, "holder   {}", holder.line());
        }
        let next = self.next.as_deref().map_or_else(|| "-".to_owned(), quote);
        let _ = write!(
            text,
            "waiting  {}\nnext     {next}\nnode     {}",
            self.waiting, self.node
        );
        text
    }
}

async fn about(key: &[u8], target: Target) -> Result<Found, Trouble> {
    let mut server = Masters::new(target).connect_for(key).await?;
    let lock = server.lock(key).await?;
    let holders = if lock.is_shared() {
        all_holders(&mut server, key).await?
    } else if lock.owner.is_some() {
        vec![Holder::new(&lock)]
    } else {
        Vec::new()
    };
    Ok(Found {
        name: escape(key),
        node: server.target.address(),
        holders,
        waiting: lock.waiting,
        next: lock.next.as_deref().map(escape),
    })
}

async fn all_holders(server: &mut Link, key: &[u8]) -> Result<Vec<Holder>, Trouble> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let some = server.holders(key, after.as_deref()).await?;
        all.extend(some.locks.iter().map(Holder::new));
        after = some.more;
        if after.is_none() {
            return Ok(all);
        }
    }
}

/// What a server says of itself.
#[derive(Serialize)]
struct Figures<'a> {
    node: &'a str,
    error: Option<String>,
    fields: BTreeMap<String, serde_json::Value>,
}

async fn servers(json: bool, target: Target) -> Result<u8, Failure> {
    let answers = Masters::new(target).ask(Link::fairlock_info).await;
    let mut code = 0;
    for Answer { address, said } in answers.map_err(Trouble::into_failure)? {
        let error = said.as_ref().err().map(Trouble::text);
        if let Some(error) = &error {
            eprintln!("fairlock: {error}");
            code = UNAVAILABLE;
        }
        let fields = said.map_or_else(|_| Vec::new(), |info| info.fields);
        let typed = |(name, value): &(String, String)| (name.clone(), typed(value));
        let figures = Figures {
            node: &address,
            error,
            fields: fields.iter().map(typed).collect(),
        };
        let lines = || {
            let line = |(name, value): &(String, String)| format!("\n  {name} {value}");
            address.clone() + &fields.iter().map(line).collect::<String>()
        };
        if (json || figures.error.is_none()) && !print(json, &figures, lines)? {
            break;
        }
    }
    Ok(code)
}

/// A number as a number.
fn typed(value: &str) -> serde_json::Value {
    match value.parse::<u64>() {
        Ok(number) => number.into(),
        Err(_) => value.into(),
    }
}
