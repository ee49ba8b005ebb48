//! `FAIRLOCK.BREAK`: takes the lock from its holders, or from one of them, for operators; the next waiter is served.
//! A hash that is no lock is refused, and so is one without an expiry unless FORCE is given: they may be
//! application data.

use crate::error::Error;
use crate::server::docs::{Docs, Keys};
use crate::server::{Args, Command, Ctx, Reply};
use crate::waiting::step;

use super::args::Call;

pub struct Break;

impl Command for Break {
    const NAME: &'static str = "fairlock.break";
    const DOCS: Docs = Docs {
        flags: c"write admin",
        categories: c"write slow admin dangerous",
        syntax: "key [OWNER owner] [FORCE]",
        summary: c"Takes a lock from its holders, or from one; the next waiter is served.",
        complexity: c"O(log(N)) with N the number of waiters",
        keys: Some(Keys::Delete),
        reply: &[
            "Replies 1, or 0 if none held it. OWNER: from this holder only. FORCE: also without a lease.",
        ],
    };
    const OPTIONS: &'static [&'static str] = &["OWNER", "FORCE"];

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        if !ctx.may_administrate(Self::NAME) {
            return Err(Error::no_permission(Self::NAME).into());
        }
        let broken = step(ctx, call.lock, |step| {
            step.state.require_holders()?;
            Ok(step.break_lock(call.only.as_deref(), call.force)?)
        })?;
        Ok(Reply::Integer(broken.into()))
    }
}
