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
use crate::keyspace::Stored;
use crate::lock::{Ask, Connection, Millis, Now, Place, Rules, Way, rules};
use crate::server::docs::{Argument, Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx, Str};
use crate::waiting::client::{self, Outcome};
use crate::waiting::{LockId, step};

use super::args::{Cursor, is, once};

/// The command.
#[derive(Debug)]
pub struct Acquire;

/// What to do when the lock cannot be had at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Block, for milliseconds or (0) without limit.
    Block(Millis),
    /// NOWAIT.
    Never,
    /// ENQUEUE.
    Enqueue,
}

#[derive(Debug)]
struct Request<'a> {
    lock: Str,
    owner: Cow<'a, [u8]>,
    lease: Millis,
    patience: Millis,
    wait: Wait,
    once: bool,
    session: Option<Connection>,
}

impl Command for Acquire {
    const NAME: &'static CStr = c"fairlock.acquire";
    const FLAGS: &'static CStr = c"write deny-oom fast blocking";
    const DOCS: Docs = Docs {
        summary: c"Takes a fair lock, or waits in its queue.",
        complexity: c"O(log(N)) with N the number of waiters.",
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
        let request = parse(ctx, arguments)?;
        let lock = || Str::new(None, request.lock.inner);
        let acquired = step(ctx, lock(), |state, rules, now| {
            let acquired = rules::acquire(state, &request.ask(), rules, now)?;
            Ok(acquired.map(|acquired| acquired.token))
        })?;
        if let Some(token) = acquired {
            ctx.reply_integer(token);
            return Ok(());
        }
        match request.wait {
            Wait::Never => ctx.reply_nil(),
            Wait::Enqueue => {
                let place = step(ctx, lock(), |state, rules, now| {
                    join(state, rules, now, &request, Way::Polling)
                })?;
                ctx.reply_array(2);
                ctx.reply_integer(i64::try_from(place.position).unwrap_or(i64::MAX));
                ctx.reply_integer(i64::try_from(place.retry_after).unwrap_or(i64::MAX));
            }
            Wait::Block(_) if ctx.flags().deny_blocking() => ctx.reply_nil(),
            Wait::Block(timeout) => block(ctx, &request, timeout),
        }
        Ok(())
    }
}

fn parse<'a>(ctx: &Ctx, arguments: &Args<'a>) -> Result<Request<'a>, Error> {
    let mut cursor = Cursor::new(arguments, "fairlock.acquire");
    let lock = cursor.lock()?;
    let owner = cursor.owner(ctx)?;
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
            once(&mut session, "SESSION", Cursor::session(ctx)?)?;
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
}

fn join(
    state: &mut Stored<'_>,
    rules: &Rules,
    now: Now,
    request: &Request<'_>,
    way: Way,
) -> Result<Place, Error> {
    Ok(rules::join(state, &request.ask(), way, rules, now)?)
}

/// Blocks the client and puts it in the queue. From here on it is told everything, refusals too,
/// as a blocked client.
fn block(ctx: &Ctx, request: &Request<'_>, timeout: Millis) {
    let id = LockId::new(ctx.db(), request.lock.as_slice());
    let Some(ticket) = client::block(ctx, id, &request.owner, timeout) else {
        ctx.reply_nil();
        return;
    };
    let lock = Str::new(None, request.lock.inner);
    let joined = step(ctx, lock, |state, rules, now| {
        join(state, rules, now, request, Way::Blocked(ticket))
    });
    if let Err(error) = joined {
        client::unblock(ctx, ticket, Outcome::Refused(error));
    }
}
