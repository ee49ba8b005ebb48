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

use crate::error::Error;
use crate::keyspace::view::LockView;
use crate::lock::Now;
use crate::server::docs::Docs;
use crate::server::{Args, Command, Ctx};
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
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let now = waiting::now();
        let most = call.count.unwrap_or(DEFAULT_COUNT);
        let listing = list(ctx, call.all, most, call.after.unwrap_or(0), now)?;
        let more = listing.more.filter(|_| most > 0);
        ctx.reply_array(listing.locks.len() + usize::from(more.is_some()));
        for (id, view) in listing.locks {
            ctx.reply_map(info::FIELDS + 2);
            ctx.reply_bytes(b"name");
            ctx.reply_bytes(&id.name);
            info::fields(ctx, &id, &view);
            ctx.reply_bytes(b"held");
            ctx.reply_integer(held(&id, &view, now));
        }
        if let Some(cursor) = more {
            ctx.reply_map(1);
            ctx.reply_bytes(b"more");
            ctx.reply_bytes(cursor.to_string().as_bytes());
        }
        Ok(())
    }
}

fn held(id: &LockId, view: &LockView, now: Now) -> i64 {
    let Some(holder) = &view.holder else {
        return 0;
    };
    let held = waiting::held_for(id, &holder.owner, now);
    held.map_or(-1, |micros| {
        i64::try_from(micros / 1000).unwrap_or(i64::MAX)
    })
}
