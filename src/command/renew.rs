//! `FAIRLOCK.RENEW`: starts the holder's lease anew. The reply is the lease now set: the one asked for, or that of the
//! lock's session if it is longer.

use crate::config;
use crate::server::docs::{Docs, Keys};
use crate::server::{Args, Command, Ctx, Reply};
use crate::waiting::step;

use super::args::Call;

pub struct Renew;

impl Command for Renew {
    const NAME: &'static str = "fairlock.renew";
    const DOCS: Docs = Docs {
        flags: c"write fast",
        categories: c"write fast",
        syntax: "key owner [LEASE milliseconds]",
        summary: c"Starts the holder's lease anew.",
        complexity: c"O(1)",
        keys: Some(Keys::Update),
        reply: &["Replies the lease in ms; NOTHELD if not the holder."],
    };
    const OPTIONS: &'static [&'static str] = &["LEASE"];

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let lease = call.lease.unwrap_or_else(|| config::LEASE.get());
        let lease = step(ctx, call.lock, |step| {
            step.state.require_holders()?;
            Ok(step.renew(&call.owner, lease)?)
        })?;
        Ok(Reply::number(lease))
    }
}
