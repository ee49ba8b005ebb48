//! `FAIRLOCK.LOCKS [ALL] [COUNT count] [AFTER cursor]`
//!
//! The locks of the selected database that have waiters or a session or are held SHARED, as this
//! server knows them: the one with most waiters first, then by name, `count` of them (100 if not given,
//! at most 1000). With ALL the other locks that are held follow, in no order. Each is a map (RESP2: a flat array) of
//!
//! - `name`: the lock's key;
//! - all that FAIRLOCK.INFO replies: `owner`, `holds`, `lease`, `token`, `session`, `waiting`, `next`;
//! - `held`: how long the holder has held it, in milliseconds; 0 when free, -1 if this server did not grant it.
//!
//! If there are more, one more map follows, of one field: `more`, the cursor that AFTER takes to go on
//! behind these. With COUNT 0 nothing follows.
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
use crate::server::docs::{Argument, Docs};
use crate::server::{Args, Command, Ctx};
use crate::waiting::{self, LockId};

use super::args::{Cursor, is, once};
use super::cursor::{Place, place};
use super::info;
use super::listing::list;

const DEFAULT_COUNT: usize = 100;

/// The command.
#[derive(Debug)]
pub struct Locks;

impl Command for Locks {
    const NAME: &'static CStr = c"fairlock.locks";
    const FLAGS: &'static CStr = c"readonly deny-script";
    const DOCS: Docs = Docs {
        summary: c"Lists the locks with waiters or a session, or all that are held.",
        complexity: c"O(log(N)+count) with N the number of such locks; with ALL as SCAN",
        since: c"0.1.0",
        arity: -1,
        keys: None,
        arguments: &[
            Argument::keyword(c"all", c"ALL").optional(),
            Argument::number(c"count").after(c"COUNT").optional(),
            Argument::text(c"cursor").after(c"AFTER").optional(),
        ],
        reply: &[
            "Most waiters first: what INFO says, the lock's name, and held: ms since the holder got it",
            "(-1: not known). Last, if there are more: the cursor. ALL: locks without waiters, too.",
        ],
    };
    const CATEGORIES: &'static CStr = c"read slow";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        waiting::require_rest()?;
        let mut cursor = Cursor::new(ctx, *arguments, "fairlock.locks");
        let (mut all, mut count, mut after) = (None, None, None);
        while let Some(option) = cursor.next() {
            if is(option, "ALL") {
                once(&mut all, "ALL", ())?;
            } else if is(option, "COUNT") {
                once(&mut count, "COUNT", cursor.count()?)?;
            } else if is(option, "AFTER") {
                let word = cursor.next().ok_or(Error::NoValue("AFTER"))?;
                let place = place(word).ok_or(Error::After("FAIRLOCK.LOCKS"))?;
                once(&mut after, "AFTER", place)?;
            } else {
                return Err(Error::UnknownOption("ALL, COUNT or AFTER"));
            }
        }
        if all.is_none() && matches!(after, Some(Place::Walk(_))) {
            // A cursor of a listing with ALL.
            return Err(Error::After("FAIRLOCK.LOCKS without ALL"));
        }
        let now = waiting::now();
        let most = count.unwrap_or(DEFAULT_COUNT);
        let listing = list(ctx, all.is_some(), most, after, now)?;
        let more = listing.more.filter(|_| count != Some(0));
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
            ctx.reply_bytes(&cursor);
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
