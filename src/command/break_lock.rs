//! `FAIRLOCK.BREAK key [OWNER owner] [FORCE]`
//!
//! Takes the lock from its holders, or from one of them, for operators; the next waiter is served. Replies 1, or 0 if
//! none held it. A hash that is no lock is refused, and so is one without an expiry unless FORCE is given: they may
//! be application data. O(log N) with N waiters.

use std::ffi::CStr;

use crate::error::Error;
use crate::lock::TakeAway;
use crate::server::docs::{Argument, Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::step;

use super::args::{Cursor, is, once, permit};

/// The command.
#[derive(Debug)]
pub struct Break;

impl Command for Break {
    const NAME: &'static CStr = c"fairlock.break";
    const FLAGS: &'static CStr = c"write admin";
    const DOCS: Docs = Docs {
        summary: c"Takes a lock from its holders, or from one; the next waiter is served.",
        complexity: c"O(log(N)) with N the number of waiters",
        since: c"0.1.0",
        arity: -2,
        keys: Some(Keys::First(KeyUse::Delete)),
        arguments: &[
            Argument::key(c"key"),
            Argument::text(c"owner").after(c"OWNER").optional(),
            Argument::keyword(c"force", c"FORCE").optional(),
        ],
        reply: &[
            "Replies 1, or 0 if none held it. OWNER: from this holder only. FORCE: also without a lease.",
        ],
    };
    const CATEGORIES: &'static CStr = c"write slow admin dangerous";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let mut cursor = Cursor::new(ctx, *arguments, "fairlock.break");
        let lock = cursor.lock()?;
        let (mut owner, mut force) = (None, None);
        while let Some(option) = cursor.next() {
            if is(option, "OWNER") {
                once(&mut owner, "OWNER", cursor.owner_after("OWNER")?)?;
            } else if is(option, "FORCE") {
                once(&mut force, "FORCE", true)?;
            } else {
                return Err(Error::UnknownOption("OWNER or FORCE"));
            }
        }
        permit(ctx, "fairlock.break", lock, *arguments)?;
        if !ctx.may_administrate("fairlock.break") {
            return Err(Error::NoPermission("fairlock.break"));
        }
        let broken = step(ctx, lock, |step| {
            step.state.require_holders()?;
            Ok(step.break_lock(&TakeAway {
                owner: owner.as_deref(),
                force: force.is_some(),
            })?)
        })?;
        ctx.reply_integer(i64::from(broken));
        Ok(())
    }
}
