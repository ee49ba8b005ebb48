//! `FAIRLOCK.BREAK key [FORCE]`
//!
//! Frees the lock whoever holds it, for operators; the next waiter is served. Replies 1, or 0 if
//! nobody held it. A hash that is no lock is refused, and so is one without an expiry unless FORCE is given: they may
//! be somebody's data. O(log N) with N waiters.

use std::ffi::CStr;

use crate::error::Error;
use crate::lock::rules;
use crate::server::docs::{Argument, Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::step;

use super::args::{Cursor, is, once};

/// The command.
#[derive(Debug)]
pub struct Break;

impl Command for Break {
    const NAME: &'static CStr = c"fairlock.break";
    const FLAGS: &'static CStr = c"write admin";
    const DOCS: Docs = Docs {
        summary: c"Frees a lock whoever holds it; the next waiter is served.",
        complexity: c"O(log(N)) with N the number of waiters",
        since: c"0.1.0",
        arity: -2,
        keys: Some(Keys::First(KeyUse::Delete)),
        arguments: &[
            Argument::key(c"key"),
            Argument::keyword(c"force", c"FORCE").optional(),
        ],
    };
    const CATEGORIES: &'static CStr = c"write slow admin dangerous";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let mut cursor = Cursor::new(ctx, *arguments, "fairlock.break");
        let lock = cursor.lock()?;
        let mut force = None;
        while let Some(option) = cursor.next() {
            if !is(option, "FORCE") {
                return Err(Error::UnknownOption("FORCE"));
            }
            once(&mut force, "FORCE", true)?;
        }
        if !ctx.may_administrate("fairlock.break") {
            return Err(Error::NoPermission("fairlock.break"));
        }
        let broken = step(ctx, lock, |state, rules, now| {
            Ok(rules::break_lock(state, force.is_some(), rules, now)?)
        })?;
        ctx.reply_integer(i64::from(broken));
        Ok(())
    }
}
