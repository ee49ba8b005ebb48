//! `FAIRLOCK.LOCKS [ALL] [COUNT count] [AFTER cursor]`
//!
//! The locks of the selected database that have waiters or a session or are held SHARED, as this
//! server knows them, in no order: about `count` of them (100 if not given, at most 1000). With ALL the other locks
//! that are held follow. Each is a map (RESP2: a flat array) of
//!
//! - `name`: the lock's key;
//! - all that FAIRLOCK.INFO replies: `owner`, `holds`, `lease`, `token`, `session`, `waiting`, `next`;
//! - `held`: how long the holder has held it, in milliseconds; 0 when free, -1 if this server did not grant it.
//!
//! If there are more, one more map follows, of one field: `more`, the cursor that AFTER takes to go on, a number. As
//! with SCAN, a lock that is there during the whole listing is listed at least once. With COUNT 0 nothing follows.
//!
//! Only locks whose key the user may read are shown. Scripts cannot call it, because the server does not tell
//! a script's user. A replica has no records of locks, but shows those that are held with ALL; in a cluster each
//! server shows its own.
//!
//! Read-only. Without ALL it is O(log N + count) with N such locks; with ALL all replies together look at each
//! key once, as SCAN does. A reply ends with `more` before `count` locks are found if other clients would have to
//! wait for the search. [`super::listing`] searches.

use std::ffi::CStr;

use crate::keyspace::view::LockView;
use crate::lock::Now;
use crate::server::docs::Docs;
use crate::server::{Args, Command, Ctx, Reply};
use crate::waiting::{self, LockId};

use super::args::Call;
use super::info;
use super::listing::list;

const DEFAULT_COUNT: usize = 100;

/// The command.
#[derive(Debug)]
pub struct Locks;

impl Command for Locks {
    const NAME: &'static str = "fairlock.locks";
    const FLAGS: &'static CStr = c"readonly deny-script";
    const DOCS: Docs = Docs {
        syntax: "[ALL] [COUNT count] [AFTER cursor]",
        summary: c"Lists the locks with waiters or a session, or all that are held.",
        complexity: c"O(log(N)+count) with N the number of such locks; with ALL as SCAN",
        since: c"0.1.0",
        keys: None,
        reply: &[
            "What INFO says of each, its name, and held: ms since the holder got it (-1: not known).",
            "Last, if there are more: the cursor for AFTER. ALL: locks without waiters, too.",
        ],
    };
    const OPTIONS: &'static [&'static str] = &["ALL", "COUNT", "AFTER"];
    const CATEGORIES: &'static CStr = c"read slow";

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let now = waiting::now();
        let most = call.count.unwrap_or(DEFAULT_COUNT);
        let (locks, more) = list(ctx, call.all, most, call.after.unwrap_or(0), now)?;
        let more = more.filter(|_| most > 0);
        let locks = locks.into_iter().map(|(id, view)| {
            let held = held(&id, &view, now);
            let mut fields = vec![("name", Reply::Bytes(id.name.to_vec()))];
            fields.extend(info::fields(&id, view));
            fields.push(("held", held));
            Reply::Map(fields)
        });
        let more = more.map(|cursor| {
            let cursor = Reply::Bytes(cursor.to_string().into_bytes());
            Reply::Map(vec![("more", cursor)])
        });
        Ok(Reply::Array(locks.chain(more).collect()))
    }
}

fn held(id: &LockId, view: &LockView, now: Now) -> Reply {
    view.holder.as_ref().map_or(Reply::Integer(0), |holder| {
        let held = waiting::held_for(id, &holder.owner, now);
        info::milliseconds(held.map(|micros| micros / 1000))
    })
}
