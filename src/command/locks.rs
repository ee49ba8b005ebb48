//! `FAIRLOCK.LOCKS [COUNT count]`
//!
//! The locks of the selected database that have waiters or are bound to a connection, as this
//! server knows them: the one with most waiters first, `count` of them (100 if not given, -1: all).
//! Each is a map (RESP2: a flat array) of
//!
//! - `name`: the lock's key;
//! - all that FAIRLOCK.INFO replies: `owner`, `holds`, `lease`, `token`, `session`, `waiting`, `next`;
//! - `held`: milliseconds since this server made the holder the holder; 0 when free, -1 if others did.
//!
//! Only locks whose key the user may read are shown. Not for scripts, in which the server does not
//! tell whose they are. A replica knows of none; in a cluster each server knows its own.
//!
//! Read-only, O(N log N) in the number of such locks: the keyspace is not searched.

use std::ffi::CStr;

use crate::error::Error;
use crate::keyspace::Names;
use crate::keyspace::view::{self, LockView};
use crate::lock::Now;
use crate::server::docs::{Argument, Docs};
use crate::server::user::User;
use crate::server::{Args, Command, Ctx, string};
use crate::waiting::{self, LockId};

use super::args::{Cursor, is, once};
use super::info;

const DEFAULT_COUNT: usize = 100;

/// The command.
#[derive(Debug)]
pub struct Locks;

impl Command for Locks {
    const NAME: &'static CStr = c"fairlock.locks";
    const FLAGS: &'static CStr = c"readonly deny-script";
    const DOCS: Docs = Docs {
        summary: c"Lists the locks with waiters or a session.",
        complexity: c"O(N log N) in the number of such locks",
        since: c"0.1.0",
        arity: -1,
        keys: None,
        arguments: &[Argument::number(c"count").after(c"COUNT").optional()],
    };
    const CATEGORIES: &'static CStr = c"read slow";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        waiting::require_rest()?;
        let mut cursor = Cursor::new(ctx, *arguments, "fairlock.locks");
        let mut count = None;
        while let Some(option) = cursor.next() {
            if !is(option, "COUNT") {
                return Err(Error::UnknownOption("COUNT"));
            }
            once(&mut count, "COUNT", cursor.count()?)?;
        }
        let now = waiting::now();
        let locks = visible(ctx, count.unwrap_or(DEFAULT_COUNT), now);
        ctx.reply_array(locks.len());
        for (id, view) in locks {
            ctx.reply_map(info::FIELDS + 2);
            ctx.reply_bytes(b"name");
            ctx.reply_bytes(&id.name);
            info::fields(ctx, &id, &view);
            ctx.reply_bytes(b"held");
            ctx.reply_integer(held(&id, &view, now));
        }
        Ok(())
    }
}

/// The busiest locks that the caller may read. One of whose keys holds something else is not shown.
fn visible(ctx: &Ctx, count: usize, now: Now) -> Vec<(LockId, LockView)> {
    let db = ctx.db();
    // Who is no connection is another module, which may do everything.
    let user = ctx.user_name().map(|name| User::named(&name));
    let locks = waiting::busiest(db).into_iter().filter_map(|name| {
        let names = Names::of(&name);
        // What is shown of a lock is in its queue, which another lock may have in common with it.
        let twin = waiting::shares_queue_with(ctx, &name);
        let may_read = user.as_ref().is_none_or(|user| {
            let twin = twin.as_deref().map(string);
            let all = std::iter::once(&names.lock).chain(&twin);
            user.as_ref()
                .is_some_and(|user| all.into_iter().all(|lock| user.may_read(lock)))
        });
        let view = may_read.then(|| view::lock(ctx, &names, now))?.ok()?;
        Some((LockId { db, name }, view))
    });
    locks.take(count).collect()
}

fn held(id: &LockId, view: &LockView, now: Now) -> i64 {
    if view.holder.is_none() {
        return 0;
    }
    let held = waiting::held_for(id, now);
    held.map_or(-1, |micros| {
        i64::try_from(micros / 1000).unwrap_or(i64::MAX)
    })
}
