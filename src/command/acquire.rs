//! `FAIRLOCK.ACQUIRE key owner [SHARED [limit]] [LEASE ms] [WAIT ms | NOWAIT | ENQUEUE]
//! [PATIENCE ms] [SESSION] [ONCE]`
//!
//! Takes the lock, or waits in its queue. Replies the fencing token (integer > 0) once `owner`
//! holds the lock; nil when it could not have it in time; with ENQUEUE the array
//! `[position, retry-after]` instead of waiting. O(log N) with N waiters.
//!
//! With SHARED the owner may hold the lock together with other SHARED owners; with a limit, with at most that
//! many holders in all. O(log H) more with H holders.
//!
//! A holder that asks again adds one to its hold count (with ONCE it does not), gets a fresh lease and the
//! same token. Without LEASE its lease is not made shorter. With SESSION the lock lives as long as this
//! connection: the server renews the lease, and frees the lock when the connection closes. Where the client may
//! not block (MULTI, scripts) the command tries once.

use std::borrow::Cow;
use std::ffi::CStr;

use crate::config;
use crate::error::Error;
use crate::fault;
use crate::keyspace::OpenLock;
use crate::lock::{Ask, Connection, Holds, Limit, Millis, Place, State, Step, WaitMode};
use crate::server::docs::{Argument, Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::{self, step};

use super::args::{Caller, Cursor, Words, is, once, permit};

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
    /// The owner that asks for it.
    pub owner: Cow<'a, [u8]>,
    /// LEASE.
    pub lease: Option<Millis>,
    /// SHARED, and its limit.
    pub limit: Limit,
    /// PATIENCE.
    pub patience: Option<Millis>,
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
        complexity: c"O(log(N)) with N the number of waiters and holders",
        since: c"0.1.0",
        arity: -3,
        keys: Some(Keys::First(KeyUse::Update)),
        arguments: &[
            Argument::key(c"key"),
            Argument::text(c"owner"),
            Argument::block(
                c"shared",
                &[
                    Argument::keyword(c"shared", c"SHARED"),
                    Argument::number(c"limit").optional(),
                ],
            )
            .optional(),
            Argument::number(c"milliseconds").after(c"LEASE").optional(),
            Argument::one_of(
                c"way",
                &[
                    Argument::number(c"milliseconds").after(c"WAIT"),
                    Argument::keyword(c"nowait", c"NOWAIT"),
                    Argument::keyword(c"enqueue", c"ENQUEUE"),
                ],
            )
            .optional(),
            Argument::number(c"milliseconds")
                .after(c"PATIENCE")
                .optional(),
            Argument::keyword(c"session", c"SESSION").optional(),
            Argument::keyword(c"once", c"ONCE").optional(),
        ],
        reply: &[
            "Replies the fencing token, nil if not in time, or with ENQUEUE [position, retry-after].",
            "owner '*' is this connection. SHARED: together with other SHARED owners, at most limit of them.",
            "SESSION: the lock lives as long as this connection. ONCE: the holder asking again adds no hold.",
        ],
    };
    const CATEGORIES: &'static CStr = c"write fast blocking";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let request = parse(ctx, *arguments)?;
        permit(ctx, "fairlock.acquire", request.lock, *arguments)?;
        let answer = step(ctx, request.lock, |step| {
            step.state.learn_name(arguments.string(1));
            request.decide(ctx, step)
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
}

/// Reads the arguments.
///
/// # Errors
/// The error for the first argument that is refused.
pub fn parse<'a>(caller: &impl Caller, arguments: impl Words<'a>) -> Result<Request<'a>, Error> {
    let mut cursor = Cursor::new(caller, arguments, "fairlock.acquire");
    let lock = cursor.lock()?;
    let owner = cursor.owner()?;
    let (mut lease, mut patience, mut wait) = (None, None, None);
    let (mut hold_once, mut session, mut limit) = (None, None, None);
    while let Some(option) = cursor.next() {
        if is(option, "LEASE") {
            once(&mut lease, "LEASE", cursor.duration("LEASE")?)?;
        } else if is(option, "PATIENCE") {
            once(&mut patience, "PATIENCE", cursor.duration("PATIENCE")?)?;
        } else if is(option, "ONCE") {
            once(&mut hold_once, "ONCE", true)?;
        } else if is(option, "SESSION") {
            once(&mut session, "SESSION", cursor.session()?)?;
        } else if is(option, "SHARED") {
            once(&mut limit, "SHARED", cursor.limit_of_holders()?)?;
        } else {
            let (keyword, asked) = way(&mut cursor, option)?;
            choose(&mut wait, keyword, asked)?;
        }
    }
    let wait = wait.map_or(Wait::Block(0), |(_, wait)| wait);
    Ok(Request {
        lock,
        owner,
        lease,
        limit: limit.unwrap_or(Limit::EXCLUSIVE),
        patience,
        wait,
        once: hold_once.unwrap_or(false),
        session,
    })
}

fn decline(step: &mut Step<'_, OpenLock<'_>>) -> Answer {
    step.decline();
    Answer::Nil
}

/// One of the options that say how to wait.
fn way<'a, C: Caller, W: Words<'a>>(
    cursor: &mut Cursor<'_, C, W>,
    option: &[u8],
) -> Result<(&'static str, Wait), Error> {
    if is(option, "WAIT") {
        Ok(("WAIT", Wait::Block(cursor.wait()?)))
    } else if is(option, "NOWAIT") {
        Ok(("NOWAIT", Wait::Never))
    } else if is(option, "ENQUEUE") {
        Ok(("ENQUEUE", Wait::Enqueue))
    } else {
        Err(Error::UnknownOption(
            "SHARED, LEASE, WAIT, NOWAIT, ENQUEUE, PATIENCE, SESSION or ONCE",
        ))
    }
}

/// Only one of WAIT, NOWAIT and ENQUEUE may be given, and once.
fn choose(
    chosen: &mut Option<(&'static str, Wait)>,
    keyword: &'static str,
    wait: Wait,
) -> Result<(), Error> {
    match chosen.replace((keyword, wait)) {
        None => Ok(()),
        Some((before, _)) if before == keyword => Err(Error::Twice(keyword)),
        Some(_) => Err(Error::Contradiction),
    }
}

impl Request<'_> {
    fn ask(&self) -> Ask<'_> {
        Ask {
            owner: &self.owner,
            lease: self.lease.unwrap_or_else(|| config::LEASE.get()),
            keeps_longer_lease: self.lease.is_none(),
            patience: self.patience.unwrap_or_else(|| config::PATIENCE.get()),
            once: self.once,
            session: self.session,
            limit: self.limit,
        }
    }

    /// Takes the lock, or waits as was asked.
    fn decide(&self, ctx: &Ctx, step: &mut Step<'_, OpenLock<'_>>) -> Result<Answer, Error> {
        let ask = self.ask();
        step.state.require_holders()?;
        if !self.limit.is_exclusive() {
            step.state.expect_shared().map_err(|_| Error::WrongType)?;
        }
        if let Err(moving) = step.state.require_queue()
            && step.state.holds(&self.owner) == Holds::None
        {
            return Err(moving.into());
        }
        if let Some(acquired) = step.acquire(&ask)? {
            return Ok(Answer::Token(acquired.token));
        }
        match self.wait {
            Wait::Never => Ok(decline(step)),
            Wait::Enqueue => {
                step.require_room(&self.owner)?;
                fault::point("before-joining", &self.owner);
                let place = step.join(&ask, WaitMode::Polling);
                fault::point("after-joining", &self.owner);
                Ok(Answer::Place(place))
            }
            Wait::Block(_) if ctx.flags().deny_blocking() => Ok(decline(step)),
            Wait::Block(timeout) => {
                step.require_room(&self.owner)?;
                self.block(ctx, timeout, &ask, step)
            }
        }
    }

    /// Blocks the client and puts its owner in the queue. The reply comes from `waiting`, when the wait ends.
    fn block(
        &self,
        ctx: &Ctx,
        timeout: Millis,
        ask: &Ask<'_>,
        step: &mut Step<'_, OpenLock<'_>>,
    ) -> Result<Answer, Error> {
        let id = waiting::lock_id(ctx.db(), self.lock);
        let ticket = waiting::block(ctx, id, &self.owner, timeout, step.now);
        let ticket = ticket.ok_or(Error::CannotBlock)?;
        fault::point("before-joining", &self.owner);
        step.join(ask, WaitMode::Blocked(ticket));
        fault::point("after-joining", &self.owner);
        Ok(Answer::Later)
    }
}
