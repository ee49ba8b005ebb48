//! `FAIRLOCK.ACQUIRE`: takes the lock, or waits in its queue.
//!
//! A holder that asks again adds one to its hold count (with ONCE it does not), gets a fresh lease and the
//! same token. Without LEASE its lease is not made shorter. With SESSION the lock lives as long as this
//! connection: the server renews the lease, and frees the lock when the connection closes. Where the client may
//! not block (MULTI, scripts) the command tries once.

use crate::config;
use crate::error::Error;
use crate::fault;
use crate::keyspace::OpenLock;
use crate::lock::{Ask, Holds, Limit, Outcome, State, Step, Terms, WaitMode};
use crate::server::docs::{Docs, Keys};
use crate::server::{Args, Command, Ctx, Reply};
use crate::waiting::{self, step};

use super::args::{Call, Wait};

pub struct Acquire;

impl Command for Acquire {
    const NAME: &'static str = "fairlock.acquire";
    const DOCS: Docs = Docs {
        flags: c"write deny-oom fast blocking",
        categories: c"write fast blocking",
        syntax: "key owner [SHARED [limit]] [LEASE milliseconds] [WAIT milliseconds | NOWAIT | ENQUEUE] \
            [PATIENCE milliseconds] [SESSION] [ONCE]",
        summary: c"Takes a fair lock, or waits in its queue.",
        complexity: c"O(log(N)) with N the number of waiters and holders",
        keys: Some(Keys::Update),
        reply: &[
            "Replies the fencing token, nil if not in time, or with ENQUEUE [position, retry-after].",
            "owner '*' is this connection. SHARED: together with other SHARED owners, at most limit of them.",
            "SESSION: the lock lives as long as this connection. ONCE: the holder asking again adds no hold.",
        ],
    };
    const OPTIONS: &'static [&'static str] = &[
        "SHARED", "LEASE", "WAIT", "NOWAIT", "ENQUEUE", "PATIENCE", "SESSION", "ONCE",
    ];

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let (outcome, now) = step(ctx, call.lock, |step| {
            step.state.learn_name(arguments.string(1));
            Ok((decide(&call, ctx, step)?, step.now))
        })?;
        Ok(match (outcome, call.wait.unwrap_or(Wait::Block(0))) {
            (Outcome::Acquired(token), _) => Reply::Integer(token),
            (Outcome::Declined, _) => Reply::Nil,
            // The reply comes from `waiting`, when the wait ends.
            (Outcome::Joined(_), Wait::Block(timeout)) => {
                waiting::block(ctx, call.lock, &call.owner, timeout, now)?;
                Reply::Elsewhere
            }
            (Outcome::Joined(joined), _) => Reply::Array(vec![
                Reply::number(joined.position),
                Reply::number(joined.retry_after),
            ]),
        })
    }
}

/// Takes the lock, or waits as was asked.
fn decide(call: &Call<'_>, ctx: &Ctx, step: &mut Step<'_, OpenLock<'_>>) -> Result<Outcome, Error> {
    let ask = Ask {
        owner: &call.owner,
        terms: Terms {
            lease: call.lease.unwrap_or_else(|| config::LEASE.get()),
            session: call.session,
            limit: call.shared.unwrap_or(Limit::EXCLUSIVE),
        },
        keeps_longer_lease: call.lease.is_none(),
        patience: call.patience.unwrap_or_else(|| config::PATIENCE.get()),
        once: call.once,
        wait: match call.wait {
            Some(Wait::Enqueue) => Some(WaitMode::Polling),
            Some(Wait::Never) => None,
            _ => (!ctx.denies_blocking()).then_some(WaitMode::Blocked(ctx.client_id())),
        },
    };
    step.state.require_holders()?;
    if !ask.terms.limit.is_exclusive() {
        step.state.expect_shared().map_err(|_| Error::WRONG_TYPE)?;
    }
    if let Err(moving) = step.state.require_queue()
        && step.state.holds(ask.owner) == Holds::None
    {
        return Err(moving.into());
    }
    fault::point("before-joining", ask.owner);
    let outcome = step.ask(&ask)?;
    fault::point("after-joining", ask.owner);
    Ok(outcome)
}
