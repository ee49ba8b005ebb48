//! `FAIRLOCK.RENEW key owner [LEASE ms]`
//!
//! Starts the holder's lease anew. Replies the lease now set, in milliseconds: the one asked for,
//! or that of the lock's session if it is longer. Error `NOTHELD` if `owner` is not the holder.
//! O(1).

use std::ffi::CStr;

use crate::config;
use crate::error::Error;
use crate::lock::rules;
use crate::server::docs::{Argument, Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::step;

use super::args::{Cursor, is, once};

/// The command.
#[derive(Debug)]
pub struct Renew;

impl Command for Renew {
    const NAME: &'static CStr = c"fairlock.renew";
    const FLAGS: &'static CStr = c"write fast";
    const DOCS: Docs = Docs {
        summary: c"Starts the holder's lease anew.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arity: -3,
        keys: Some(Keys::First(KeyUse::Update)),
        arguments: &[
            Argument::key(c"key"),
            Argument::text(c"owner"),
            Argument::number(c"lease").after(c"LEASE").optional(),
        ],
    };
    const CATEGORIES: &'static CStr = c"write fast";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let mut cursor = Cursor::new(arguments, "fairlock.renew");
        let lock = cursor.lock(ctx)?;
        let owner = cursor.owner(ctx)?;
        let mut lease = None;
        while let Some(option) = cursor.next() {
            if !is(option, "LEASE") {
                return Err(Error::UnknownOption("LEASE"));
            }
            once(&mut lease, "LEASE", cursor.duration("LEASE")?)?;
        }
        let lease = lease.unwrap_or_else(|| config::LEASE.get());
        let lease = step(ctx, lock, |state, rules, now| {
            Ok(rules::renew(state, &owner, lease, rules, now)?)
        })?;
        ctx.reply_integer(i64::try_from(lease).unwrap_or(i64::MAX));
        Ok(())
    }
}
