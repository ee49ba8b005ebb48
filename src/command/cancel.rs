//! `FAIRLOCK.CANCEL`: takes an owner out of the queue; an ACQUIRE that is blocked for it replies nil.

use crate::server::docs::{Docs, Keys};
use crate::server::{Args, Command, Ctx, Reply};
use crate::waiting::step;

use super::args::Call;

pub struct Cancel;

impl Command for Cancel {
    const NAME: &'static str = "fairlock.cancel";
    const DOCS: Docs = Docs {
        flags: c"write fast",
        categories: c"write fast",
        syntax: "key owner",
        summary: c"Takes an owner out of the queue.",
        complexity: c"O(log(N)) with N the number of waiters",
        keys: Some(Keys::Update),
        reply: &["Replies 1, or 0 if not in it."],
    };

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let cancelled = step(ctx, call.lock, |step| {
            step.state.require_queue()?;
            Ok(step.cancel(&call.owner))
        })?;
        Ok(Reply::Integer(cancelled.into()))
    }
}
