//! `FAIRLOCK.HOLDERS key [AFTER cursor]`
//!
//! The holders in the order in which they got the lock, each as `[owner, holds, lease, token, session, limit]`:
//!
//! - `lease`: the milliseconds that are left of its lease, -1 if it has none;
//! - `token`: its fencing token, nil if it has none;
//! - `session`: whether its hold is bound to a connection (RESP2: 1 or 0);
//! - `limit`: how many holders it tolerates: 1 is exclusive, 0 any number.
//!
//! Empty if the lock is free.
//!
//! Of a lock with more than 1000 holders a reply has about 1000, as they are found, in order among themselves; its
//! last element is then a map (RESP2: a flat array) of one field, `more`: the cursor that AFTER takes to go on.
//! Read-only, O(H log H) with H holders in the reply.

use std::ffi::CStr;

use crate::error::Error;
use crate::keyspace::Names;
use crate::keyspace::view::{self, HolderView, MOST_READ};
use crate::lock::Now;
use crate::server::docs::{Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::{self, LockId};

use super::args::Call;
use super::info::{integer_or_nil, milliseconds};

/// The command.
#[derive(Debug)]
pub struct Holders;

impl Command for Holders {
    const NAME: &'static str = "fairlock.holders";
    const FLAGS: &'static CStr = c"readonly";
    const DOCS: Docs = Docs {
        syntax: "key [AFTER cursor]",
        summary: c"Lists the holders of a lock.",
        complexity: c"O(H*log(H)) with H the number of holders, about 1000 at most",
        since: c"0.1.0",
        keys: Some(Keys::First(KeyUse::Read)),
        reply: &[
            "Each holder: owner, holds, lease in ms, token, session, limit (1: exclusive, 0: none).",
            "Last, if there are more than 1000: the cursor.",
        ],
    };
    const OPTIONS: &'static [&'static str] = &["AFTER"];
    const CATEGORIES: &'static CStr = c"read slow";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let id = LockId::new(ctx.db(), call.lock);
        let (holders, next) = some(ctx, &Names::of(call.lock), call.after, waiting::now())?;
        ctx.reply_array(holders.len() + usize::from(next > 0));
        for holder in holders {
            ctx.reply_array(6);
            ctx.reply_bytes(&holder.owner);
            ctx.reply_integer(holder.holds);
            ctx.reply_integer(milliseconds(holder.lease));
            integer_or_nil(ctx, holder.token);
            ctx.reply_bool(waiting::is_session(&id, &holder.owner));
            ctx.reply_integer(holder.limit.shown().into());
        }
        if next > 0 {
            ctx.reply_map(1);
            ctx.reply_bytes(b"more");
            ctx.reply_bytes(next.to_string().as_bytes());
        }
        Ok(())
    }
}

/// The holders, and the cursor of the rest: 0 if there is none.
fn some(
    ctx: &Ctx,
    names: &Names,
    after: Option<u64>,
    now: Now,
) -> Result<(Vec<HolderView>, u64), Error> {
    if let Some(place) = after {
        return view::more_holders(ctx, names, place, now);
    }
    let (holders, number) = view::holders(ctx, names, MOST_READ, now)?;
    if holders.len() < number {
        // Large sets are shown in the server's own order: only there does it have a cursor.
        return view::more_holders(ctx, names, 0, now);
    }
    Ok((holders, 0))
}
