//! `FAIRLOCK.LOCKS [COUNT count] [AFTER cursor]`
//!
//! The locks of the selected database that have waiters or are bound to a connection, as this
//! server knows them: the one with most waiters first, then by name, `count` of them (100 if not given,
//! at most 1000). Each is a map (RESP2: a flat array) of
//!
//! - `name`: the lock's key;
//! - all that FAIRLOCK.INFO replies: `owner`, `holds`, `lease`, `token`, `session`, `waiting`, `next`;
//! - `held`: how long the holder has held it, in milliseconds; 0 when free, -1 if this server did not grant it.
//!
//! If there are more, one more map follows, of one field: `more`, the cursor that AFTER takes to go on
//! behind these. With COUNT 0 nothing follows.
//!
//! Only locks whose key the user may read are shown. Scripts cannot call it, because the server does not tell
//! a script's user. A replica knows of no locks; in a cluster each server knows its own.
//!
//! Read-only, O(log N + count) with N such locks: the keyspace is not searched. If the user may read few of
//! many locks, the reply may end with `more` before `count` are found, so that the search does not delay other
//! clients.

use std::ffi::CStr;
use std::rc::Rc;

use crate::error::Error;
use crate::keyspace::Names;
use crate::keyspace::view::{self, LockView};
use crate::lock::Now;
use crate::server::docs::{Argument, Docs};
use crate::server::user::User;
use crate::server::{Args, Command, Ctx, string};
use crate::waiting::{self, Busy, LockId};

use super::args::{Cursor, is, once};
use super::cursor::{hidden, place, shown};
use super::info;

const DEFAULT_COUNT: usize = 100;
/// Locks that are listed at most: a few milliseconds of the server's time.
const MOST: usize = 1000;
/// Locks that are looked at to find those that the user may read.
const LOOKED_AT: usize = 4 * MOST;
/// Locks that are taken from the table at once.
const CHUNK: usize = 100;

/// The command.
#[derive(Debug)]
pub struct Locks;

impl Command for Locks {
    const NAME: &'static CStr = c"fairlock.locks";
    const FLAGS: &'static CStr = c"readonly deny-script";
    const DOCS: Docs = Docs {
        summary: c"Lists the locks with waiters or a session.",
        complexity: c"O(log(N)+count) with N the number of such locks",
        since: c"0.1.0",
        arity: -1,
        keys: None,
        arguments: &[
            Argument::number(c"count").after(c"COUNT").optional(),
            Argument::text(c"cursor").after(c"AFTER").optional(),
        ],
        reply: &[
            "Most waiters first: what INFO says, the lock's name, and held: ms since the holder got it",
            "(-1: not known). Last, if there are more: the cursor.",
        ],
    };
    const CATEGORIES: &'static CStr = c"read slow";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        waiting::require_rest()?;
        let mut cursor = Cursor::new(ctx, *arguments, "fairlock.locks");
        let mut count = None;
        let mut after = None;
        while let Some(option) = cursor.next() {
            if is(option, "COUNT") {
                once(&mut count, "COUNT", cursor.count()?)?;
            } else if is(option, "AFTER") {
                let word = cursor.next().ok_or(Error::NoValue("AFTER"))?;
                let place = place(word).ok_or(Error::After)?;
                once(&mut after, "AFTER", place)?;
            } else {
                return Err(Error::UnknownOption("COUNT or AFTER"));
            }
        }
        let now = waiting::now();
        let listing = list(ctx, count.unwrap_or(DEFAULT_COUNT), after, now);
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

/// What is listed.
struct Listing {
    locks: Vec<(LockId, LockView)>,
    /// The cursor of the rest, if there is any.
    more: Option<Vec<u8>>,
}

/// The busiest locks that the caller may read. One of whose keys holds something else is not shown.
fn list(ctx: &Ctx, count: usize, after: Option<Busy>, now: Now) -> Listing {
    let db = ctx.db();
    // A caller without a connection is another module, which may do everything.
    let user = ctx.user_name().map(|name| User::named(&name));
    let count = count.min(MOST);
    let mut locks: Vec<(LockId, LockView)> = Vec::new();
    let (mut looked, mut after) = (0, after);
    loop {
        let chunk = waiting::busiest(db, after.as_ref(), CHUNK);
        let is_last = chunk.len() < CHUNK;
        for (waiters, name) in chunk {
            if looked == LOOKED_AT || locks.len() == count {
                let is_shown =
                    |place: &Busy| locks.last().is_some_and(|(id, _)| id.name == place.1);
                let more = after.map(|place| {
                    if is_shown(&place) {
                        shown(&place)
                    } else {
                        hidden(place)
                    }
                });
                return Listing { locks, more };
            }
            looked += 1;
            let view = view(ctx, user.as_ref(), &name, now);
            let id = LockId {
                db,
                name: Rc::clone(&name),
            };
            locks.extend(view.map(|view| (id, view)));
            after = Some((waiters, name));
        }
        if is_last {
            return Listing { locks, more: None };
        }
    }
}

/// A lock, if the user may read it and all that its queue is shared with.
fn view(ctx: &Ctx, user: Option<&Option<User>>, name: &[u8], now: Now) -> Option<LockView> {
    // What is shown of a lock is in its queue, which another lock may have in common with it.
    let twin = waiting::shares_queue_with(ctx, name);
    let may_read = user.is_none_or(|user| {
        let all = std::iter::once(name).chain(twin.as_deref());
        user.as_ref()
            .is_some_and(|user| all.into_iter().all(|lock| user.may_read(&string(lock))))
    });
    may_read
        .then(|| view::lock(ctx, &Names::of(name), now))?
        .ok()
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
