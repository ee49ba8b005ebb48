//! `FAIRLOCK.QUEUE key [LIMIT offset count]`
//!
//! The waiters in order, each as `[owner, "blocked" | "polling", ms to deadline, limit]`; the deadline of
//! a blocked waiter is -1. The limit is how many holders it tolerates: 1 is exclusive, 0 is SHARED without a
//! limit. LIMIT shows `count` waiters (-1: all) from the 0-based `offset`. Read-only. A replica shows what is
//! in its keys, and no waiter as blocked. O(offset + count).

use std::ffi::CStr;

use crate::error::Error;
use crate::keyspace::{Names, view};
use crate::lock::{Limit, Presence};
use crate::server::docs::{Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::{self, LockId};

use super::args::Call;

/// The command.
#[derive(Debug)]
pub struct Queue;

impl Command for Queue {
    const NAME: &'static str = "fairlock.queue";
    const FLAGS: &'static CStr = c"readonly";
    const DOCS: Docs = Docs {
        syntax: "key [LIMIT offset count]",
        summary: c"Lists the waiters in order.",
        complexity: c"O(offset+count)",
        since: c"0.1.0",
        keys: Some(Keys::First(KeyUse::Read)),
        reply: &[
            "Each waiter: owner, blocked or polling, ms to its deadline (-1 if blocked), limit (1: exclusive).",
        ],
    };
    const OPTIONS: &'static [&'static str] = &["LIMIT"];
    const CATEGORIES: &'static CStr = c"read slow";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let (offset, count) = call.limit.unwrap_or((0, usize::MAX));
        let (id, now) = (LockId::new(ctx.db(), call.lock), waiting::now());
        let waiters = view::waiters(ctx, &Names::of(call.lock), offset, count, now)?;
        ctx.reply_array(waiters.len());
        for (owner, left) in waiters {
            let waiter = waiting::waiter(&id, owner.as_slice());
            let (state, left) = match waiter.map(|waiter| (waiter.presence, waiter.deadline)) {
                Some((Presence::Blocked(_), _)) => ("blocked", None),
                Some((Presence::Polling | Presence::Asked, deadline)) => {
                    ("polling", Some(now.left_until(deadline)))
                }
                // Only its score is known.
                _ => ("polling", Some(left)),
            };
            let left = left.map_or(-1, |left| i64::try_from(left).unwrap_or(i64::MAX));
            let limit = waiter.map_or(Limit::EXCLUSIVE, |waiter| waiter.terms.limit);
            ctx.reply_array(4);
            ctx.reply_bytes(owner.as_slice());
            ctx.reply_bytes(state.as_bytes());
            ctx.reply_integer(left);
            ctx.reply_integer(limit.shown().into());
        }
        Ok(())
    }
}
