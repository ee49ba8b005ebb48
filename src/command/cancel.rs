//! `FAIRLOCK.CANCEL key owner`
//!
//! Takes `owner` out of the queue; an ACQUIRE that is blocked for it replies nil. Replies 1, or 0
//! if it was not in the queue. O(log N) with N waiters.

use std::ffi::CStr;

use crate::error::Error;
use crate::server::docs::{Argument, Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::step;

use super::args::{Cursor, permit};

/// The command.
#[derive(Debug)]
pub struct Cancel;

impl Command for Cancel {
    const NAME: &'static CStr = c"fairlock.cancel";
    const FLAGS: &'static CStr = c"write fast";
    const DOCS: Docs = Docs {
        summary: c"Takes an owner out of the queue.",
        complexity: c"O(log(N)) with N the number of waiters",
        since: c"0.1.0",
        arity: 3,
        keys: Some(Keys::First(KeyUse::Update)),
        arguments: &[Argument::key(c"key"), Argument::text(c"owner")],
        reply: &["Replies 1, or 0 if not in it."],
    };
    const CATEGORIES: &'static CStr = c"write fast";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let mut cursor = Cursor::new(ctx, *arguments, "fairlock.cancel");
        let lock = cursor.lock()?;
        let owner = cursor.owner()?;
        cursor.finish()?;
        permit(ctx, "fairlock.cancel", lock, *arguments)?;
        let cancelled = step(ctx, lock, |step| {
            step.state.require_queue()?;
            Ok(step.cancel(&owner))
        })?;
        ctx.reply_integer(i64::from(cancelled));
        Ok(())
    }
}
