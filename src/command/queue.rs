//! `FAIRLOCK.QUEUE key [LIMIT offset count]`
//!
//! The waiters in order, each as `[owner, "blocked" | "polling", ms to deadline, limit]`; the deadline of
//! a blocked waiter is -1. The limit is how many holders it tolerates: 1 is exclusive, 0 is SHARED without a
//! limit. LIMIT shows `count` waiters (-1: all) from the 0-based `offset`. Read-only. A replica shows what is
//! in its keys, and no waiter as blocked. O(offset + count).

use std::ffi::CStr;

use crate::error::Error;
use crate::keyspace::{Names, view};
use crate::lock::Limit;
use crate::server::docs::{Argument, Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::{self, LockId, Seen};

use super::args::{Caller, Cursor, Words, is, once, permit};

/// The command.
#[derive(Debug)]
pub struct Queue;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The lock's key.
    pub lock: &'a [u8],
    /// LIMIT's offset, counted from 0.
    pub offset: usize,
    /// LIMIT's count; as many as there can be if none is given.
    pub count: usize,
}

impl Command for Queue {
    const NAME: &'static CStr = c"fairlock.queue";
    const FLAGS: &'static CStr = c"readonly";
    const DOCS: Docs = Docs {
        summary: c"Lists the waiters in order.",
        complexity: c"O(offset+count)",
        since: c"0.1.0",
        arity: -2,
        keys: Some(Keys::First(KeyUse::Read)),
        arguments: &[
            Argument::key(c"key"),
            Argument::block(
                c"limit",
                &[Argument::number(c"offset"), Argument::number(c"count")],
            )
            .after(c"LIMIT")
            .optional(),
        ],
        reply: &[
            "Each waiter: owner, blocked or polling, ms to its deadline (-1 if blocked), limit (1: exclusive).",
        ],
    };
    const CATEGORIES: &'static CStr = c"read slow";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        waiting::require_rest()?;
        let Request {
            lock,
            offset,
            count,
        } = parse(ctx, *arguments)?;
        let id = LockId::new(ctx.db(), lock);
        permit(ctx, "fairlock.queue", lock, *arguments)?;
        let now = waiting::now();
        let waiters = view::waiters(ctx, &Names::of(lock), offset, count, now)?;
        ctx.reply_array(waiters.len());
        for (owner, left) in waiters {
            let (state, left, limit) = match waiting::seen(&id, owner.as_slice(), now) {
                Seen::Blocked(limit) => ("blocked", None, limit),
                Seen::Asking(left, limit) => ("polling", Some(left), limit),
                // Only its score is known. Redisson's clients are exclusive.
                Seen::Never => ("polling", Some(left), Limit::EXCLUSIVE),
            };
            let left = left.map_or(-1, |left| i64::try_from(left).unwrap_or(i64::MAX));
            ctx.reply_array(4);
            ctx.reply_bytes(owner.as_slice());
            ctx.reply_bytes(state.as_bytes());
            ctx.reply_integer(left);
            ctx.reply_integer(limit.shown().into());
        }
        Ok(())
    }
}

/// Reads the arguments.
///
/// # Errors
/// The error for the first argument that is refused.
pub fn parse<'a>(caller: &impl Caller, arguments: impl Words<'a>) -> Result<Request<'a>, Error> {
    let mut cursor = Cursor::new(caller, arguments, "fairlock.queue");
    let lock = cursor.lock()?;
    let mut limit = None;
    while let Some(option) = cursor.next() {
        if !is(option, "LIMIT") {
            return Err(Error::UnknownOption("LIMIT"));
        }
        once(&mut limit, "LIMIT", cursor.limit()?)?;
    }
    let (offset, count) = limit.unwrap_or((0, usize::MAX));
    Ok(Request {
        lock,
        offset,
        count,
    })
}
