//! `FAIRLOCK.ACQUIRE key owner [LEASE ms] [WAIT ms | NOWAIT | ENQUEUE] [PATIENCE ms] [SESSION] [ONCE]`
//!
//! Takes the lock, or waits in its queue. Replies the fencing token (integer > 0) once `owner`
//! holds the lock; nil when it could not have it in time; with ENQUEUE the array
//! `[position, retry-after]` instead of waiting. O(log N) with N waiters.
//!
//! The holder asking again adds one to its hold count (with ONCE it does not), gets a fresh lease
//! and the same token. With SESSION the lock lives as long as this connection: the server renews
//! the lease and frees the lock when the connection closes. Where the client may not block (MULTI,
//! scripts) it tries once.

use std::borrow::Cow;
use std::ffi::CStr;

use crate::config;
use crate::error::Error;
use crate::fault;
use crate::keyspace::OpenLock;
use crate::lock::{Ask, Connection, Holds, Millis, Now, Place, Rules, State, Ticket, WaitMode, rules};
use crate::server::docs::{Argument, Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::{self, Outcome, step};

use super::args::{Caller, Cursor, Words, is, once};

/// The command.
#[derive(Debug)]
pub struct Acquire;

/// What to do when the lock cannot be had at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Block, for milliseconds or (0) without limit.
    Block(Millis),
    /// NOWAIT.
    Never,
    /// ENQUEUE.
    Enqueue,
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The lock's key.
    pub lock: &'a [u8],
    /// Who shall hold it.
    pub owner: Cow<'a, [u8]>,
    /// LEASE, or what is configured.
    pub lease: Millis,
    /// PATIENCE, or what is configured.
    pub patience: Millis,
    /// WAIT, NOWAIT or ENQUEUE; blocking without limit if none of them is given.
    pub wait: Wait,
    /// ONCE.
    pub once: bool,
    /// SESSION: the calling connection.
    pub session: Option<Connection>,
}

impl Command for Acquire {
    const NAME: &'static CStr = c"fairlock.acquire";
    const FLAGS: &'static CStr = c"write deny-oom fast blocking";
    const DOCS: Docs = Docs {
        summary: c"Takes a fair lock, or waits in its queue.",
        complexity: c"O(log(N)) with N the number of waiters",
        since: c"0.1.0",
        arity: -3,
        keys: Some(Keys::First(KeyUse::Update)),
        arguments: &[
            Argument::key(c"key"),
            Argument::text(c"owner"),
            Argument::number(c"lease").after(c"LEASE").optional(),
            Argument::one_of(
                c"way",
                &[
                    Argument::number(c"wait").after(c"WAIT"),
                    Argument::keyword(c"nowait", c"NOWAIT"),
                    Argument::keyword(c"enqueue", c"ENQUEUE"),
                ],
            )
            .optional(),
            Argument::number(c"patience").after(c"PATIENCE").optional(),
            Argument::keyword(c"session", c"SESSION").optional(),
            Argument::keyword(c"once", c"ONCE").optional(),
        ],
    };
    const CATEGORIES: &'static CStr = c"write fast blocking";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let request = parse(ctx, *arguments)?;
        let answer = step(ctx, request.lock, |state, rules, now| {
            state.learn_name(arguments.string(1));
            request.decide(ctx, state, rules, now)
        })?;
        match answer {
            Answer::Token(token) => ctx.reply_integer(token),
            Answer::Nil => ctx.reply_nil(),
            Answer::Place(place) => {
                ctx.reply_array(2);
                ctx.reply_integer(i64::try_from(place.position).unwrap_or(i64::MAX));
                ctx.reply_integer(i64::try_from(place.retry_after).unwrap_or(i64::MAX));
            }
            Answer::Later => (),
            Answer::Refused(ticket, error) => waiting::unblock(ticket, Outcome::Refused(error)),
        }
        Ok(())
    }
}

/// What is replied, or done in its place.
enum Answer {
    Token(i64),
    Nil,
    Place(Place),
    /// The client is blocked.
    Later,
    /// The client is blocked, and is to be told why it cannot wait.
    Refused(Ticket, Error),
}

/// Reads the arguments.
///
/// # Errors
/// Whatever is wrong with them.
pub fn parse<'a>(caller: &impl Caller, arguments: impl Words<'a>) -> Result<Request<'a>, Error> {
    let mut cursor = Cursor::new(caller, arguments, "fairlock.acquire");
    let lock = cursor.lock()?;
    let owner = cursor.owner()?;
    let (mut lease, mut patience, mut wait) = (None, None, None);
    let (mut hold_once, mut session) = (None, None);
    while let Some(option) = cursor.next() {
        if is(option, "LEASE") {
            once(&mut lease, "LEASE", cursor.duration("LEASE")?)?;
        } else if is(option, "PATIENCE") {
            once(&mut patience, "PATIENCE", cursor.duration("PATIENCE")?)?;
        } else if is(option, "ONCE") {
            once(&mut hold_once, "ONCE", true)?;
        } else if is(option, "SESSION") {
            once(&mut session, "SESSION", cursor.session()?)?;
        } else {
            let asked = if is(option, "WAIT") {
                Wait::Block(cursor.duration("WAIT")?)
            } else if is(option, "NOWAIT") {
                Wait::Never
            } else if is(option, "ENQUEUE") {
                Wait::Enqueue
            } else {
                return Err(Error::UnknownOption(
                    "LEASE, WAIT, NOWAIT, ENQUEUE, PATIENCE, SESSION or ONCE",
                ));
            };
            if wait.replace(asked).is_some() {
                return Err(Error::Contradiction);
            }
        }
    }
    Ok(Request {
        lock,
        owner,
        lease: lease.unwrap_or_else(|| config::LEASE.get()),
        patience: patience.unwrap_or_else(|| config::PATIENCE.get()),
        wait: wait.unwrap_or(Wait::Block(0)),
        once: hold_once.unwrap_or(false),
        session,
    })
}

impl Request<'_> {
    fn ask(&self) -> Ask<'_> {
        Ask {
            owner: &self.owner,
            lease: self.lease,
            patience: self.patience,
            once: self.once,
            session: self.session,
        }
    }

    /// Takes the lock, or waits as was asked.
    fn decide(
        &self,
        ctx: &Ctx,
        state: &mut OpenLock<'_>,
        rules: &Rules,
        now: Now,
    ) -> Result<Answer, Error> {
        let ask = self.ask();
        if let Err(moving) = state.require_queue()
            && state.holds(&self.owner) == Holds::None
        {
            return Err(moving.into());
        }
        if let Some(acquired) = rules::acquire(state, &ask, rules, now)? {
            return Ok(Answer::Token(acquired.token));
        }
        match self.wait {
            Wait::Never => Ok(Answer::Nil),
            Wait::Enqueue => {
                fault::point("before-joining", &self.owner);
                let place = rules::join(state, &ask, WaitMode::Polling, rules, now)?;
                fault::point("after-joining", &self.owner);
                Ok(Answer::Place(place))
            }
            Wait::Block(_) if ctx.flags().deny_blocking() => Ok(Answer::Nil),
            Wait::Block(timeout) => self.block(ctx, timeout, state, rules, now),
        }
    }

    /// Blocks the client and puts it in the queue. From here on it is told everything, refusals
    /// too, as a blocked client.
    fn block(
        &self,
        ctx: &Ctx,
        timeout: Millis,
        state: &mut OpenLock<'_>,
        rules: &Rules,
        now: Now,
    ) -> Result<Answer, Error> {
        let id = waiting::lock_id(ctx.db(), self.lock);
        let ticket = waiting::block(ctx, id, &self.owner, timeout, now);
        let ticket = ticket.ok_or(Error::CannotBlock)?;
        fault::point("before-joining", &self.owner);
        let joined = rules::join(state, &self.ask(), WaitMode::Blocked(ticket), rules, now);
        fault::point("after-joining", &self.owner);
        Ok(match joined {
            Ok(_) => Answer::Later,
            Err(refusal) => Answer::Refused(ticket, refusal.into()),
        })
    }
}
