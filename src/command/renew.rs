//! `FAIRLOCK.RENEW key owner [LEASE ms]`
//!
//! Starts the holder's lease anew. Replies the lease now set, in milliseconds: the one asked for,
//! or that of the lock's session if it is longer. Error `NOTHELD` if `owner` is not the holder.
//! O(1).

use std::borrow::Cow;
use std::ffi::CStr;

use crate::config;
use crate::error::Error;
use crate::lock::Millis;
use crate::server::docs::{Argument, Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::step;

use super::args::{Caller, Cursor, Words, is, once, permit};

/// The command.
#[derive(Debug)]
pub struct Renew;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The lock's key.
    pub lock: &'a [u8],
    /// The owner that holds it.
    pub owner: Cow<'a, [u8]>,
    /// LEASE, or what is configured.
    pub lease: Millis,
}

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
            Argument::number(c"milliseconds").after(c"LEASE").optional(),
        ],
        reply: &["Replies the lease in ms; NOTHELD if not the holder."],
    };
    const CATEGORIES: &'static CStr = c"write fast";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let request = parse(ctx, *arguments)?;
        permit(ctx, "fairlock.renew", request.lock, *arguments)?;
        let lease = step(ctx, request.lock, |step| {
            step.state.require_holders()?;
            Ok(step.renew(&request.owner, request.lease)?)
        })?;
        ctx.reply_integer(i64::try_from(lease).unwrap_or(i64::MAX));
        Ok(())
    }
}

/// Reads the arguments.
///
/// # Errors
/// The error for the first argument that is refused.
pub fn parse<'a>(caller: &impl Caller, arguments: impl Words<'a>) -> Result<Request<'a>, Error> {
    let mut cursor = Cursor::new(caller, arguments, "fairlock.renew");
    let lock = cursor.lock()?;
    let owner = cursor.owner()?;
    let mut lease = None;
    while let Some(option) = cursor.next() {
        if !is(option, "LEASE") {
            return Err(Error::UnknownOption("LEASE"));
        }
        once(&mut lease, "LEASE", cursor.duration("LEASE")?)?;
    }
    Ok(Request {
        lock,
        owner,
        lease: lease.unwrap_or_else(|| config::LEASE.get()),
    })
}
