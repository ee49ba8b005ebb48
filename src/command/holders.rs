//! `FAIRLOCK.HOLDERS`: the holders in the order in which they got the lock. A lease that has no end is -1, a token that
//! the keys do not have is nil. Read-only: it shows what is in the keys, on a replica too.

use crate::keyspace::{Names, view};
use crate::server::docs::{Docs, Keys};
use crate::server::{Args, Command, Ctx, Reply};
use crate::waiting::{self, LockId};

use super::args::Call;
use super::info::milliseconds;

pub struct Holders;

impl Command for Holders {
    const NAME: &'static str = "fairlock.holders";
    const DOCS: Docs = Docs {
        flags: c"readonly",
        categories: c"read slow",
        syntax: "key",
        summary: c"Lists the holders of a lock.",
        complexity: c"O(H*log(H)) with H the number of holders",
        keys: Some(Keys::Read),
        reply: &[
            "Each holder: owner, holds, lease in ms, token, session, limit (1: exclusive, 0: none).",
        ],
    };

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let id = LockId::new(ctx.db(), call.lock);
        let names = Names::of(call.lock);
        let (holders, _) = view::holders(ctx, &names, usize::MAX, waiting::now())?;
        let holders = holders.into_iter().map(|holder| {
            let is_session = waiting::is_session(&id, &holder.owner);
            Reply::Array(vec![
                Reply::Bytes(holder.owner),
                Reply::Integer(holder.holds),
                milliseconds(holder.lease),
                Reply::or_nil(holder.token, Reply::Integer),
                Reply::Bool(is_session),
                Reply::number(holder.terms.limit.shown()),
            ])
        });
        Ok(Reply::Array(holders.collect()))
    }
}
