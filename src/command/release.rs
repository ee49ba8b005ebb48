//! `FAIRLOCK.RELEASE`: gives up one hold, or with ALL every hold. NOTHELD, and nothing changed, if the owner is not the
//! holder, or holds the lock by another token than TOKEN.

use crate::lock::GiveUp;
use crate::server::docs::{Docs, Keys};
use crate::server::{Args, Command, Ctx, Reply};
use crate::waiting::step;

use super::args::Call;

pub struct Release;

impl Command for Release {
    const NAME: &'static str = "fairlock.release";
    const DOCS: Docs = Docs {
        flags: c"write fast",
        categories: c"write fast",
        syntax: "key owner [TOKEN token] [ALL]",
        summary: c"Gives up one hold of a fair lock, or all; the next waiter is served.",
        complexity: c"O(log(N)) with N the number of waiters",
        keys: Some(Keys::Update),
        reply: &["Replies the holds that remain; NOTHELD if not the holder."],
    };
    const OPTIONS: &'static [&'static str] = &["TOKEN", "ALL"];

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let release = GiveUp {
            owner: &call.owner,
            token: call.token,
            all: call.all,
            connection: Some(ctx.client_id()),
        };
        let left = step(ctx, call.lock, |step| {
            step.state.learn_name(arguments.string(1));
            step.state.require_holders()?;
            Ok(step.release(&release)?)
        })?;
        Ok(Reply::Integer(left))
    }
}
