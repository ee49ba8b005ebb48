//! `FAIRLOCK.RELEASE key owner [TOKEN token] [ALL]`
//!
//! Gives up one hold, or with ALL every hold. Replies the holds that remain; 0 means that the
//! lock was freed and the next waiter has been served. Error `NOTHELD`, and nothing changed, if
//! `owner` is not the holder, or holds the lock by another token than TOKEN. O(log N) with N waiters.

use std::borrow::Cow;
use std::ffi::CStr;

use crate::error::Error;
use crate::lock::{GiveUp, Given};
use crate::server::docs::{Argument, Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::step;

use super::args::{Caller, Cursor, Words, is, once, permit};

/// The command.
#[derive(Debug)]
pub struct Release;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The lock's key.
    pub lock: &'a [u8],
    /// Its holder.
    pub owner: Cow<'a, [u8]>,
    /// TOKEN.
    pub token: Option<i64>,
    /// One, or with ALL all of them.
    pub holds: Given,
}

impl Command for Release {
    const NAME: &'static CStr = c"fairlock.release";
    const FLAGS: &'static CStr = c"write fast";
    const DOCS: Docs = Docs {
        summary: c"Gives up one hold of a fair lock, or all; the next waiter is served.",
        complexity: c"O(log(N)) with N the number of waiters",
        since: c"0.1.0",
        arity: -3,
        keys: Some(Keys::First(KeyUse::Update)),
        arguments: &[
            Argument::key(c"key"),
            Argument::text(c"owner"),
            Argument::number(c"token").after(c"TOKEN").optional(),
            Argument::keyword(c"all", c"ALL").optional(),
        ],
        reply: &["Replies the holds that remain; NOTHELD if not the holder."],
    };
    const CATEGORIES: &'static CStr = c"write fast";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let request = parse(ctx, *arguments)?;
        permit(ctx, "fairlock.release", request.lock, *arguments)?;
        let release = GiveUp {
            owner: &request.owner,
            token: request.token,
            holds: request.holds,
            connection: Some(ctx.client_id()),
        };
        let left = step(ctx, request.lock, |step| {
            step.state.learn_name(arguments.string(1));
            step.state.require_holders()?;
            Ok(step.release(&release)?)
        })?;
        ctx.reply_integer(left);
        Ok(())
    }
}

/// Reads the arguments.
///
/// # Errors
/// The error for the first argument that is refused.
pub fn parse<'a>(caller: &impl Caller, arguments: impl Words<'a>) -> Result<Request<'a>, Error> {
    let mut cursor = Cursor::new(caller, arguments, "fairlock.release");
    let lock = cursor.lock()?;
    let owner = cursor.owner()?;
    let (mut token, mut all) = (None, None);
    while let Some(option) = cursor.next() {
        if is(option, "TOKEN") {
            once(&mut token, "TOKEN", cursor.token()?)?;
        } else if is(option, "ALL") {
            once(&mut all, "ALL", Given::All)?;
        } else {
            return Err(Error::UnknownOption("TOKEN or ALL"));
        }
    }
    Ok(Request {
        lock,
        owner,
        token,
        holds: all.unwrap_or(Given::One),
    })
}
