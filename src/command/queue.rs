//! `FAIRLOCK.QUEUE`: the waiters in order. A replica shows what is in its keys, and no waiter as blocked.

use crate::keyspace::{Names, view};
use crate::lock::{Limit, Presence};
use crate::server::docs::{Docs, Keys};
use crate::server::{Args, Command, Ctx, Reply};
use crate::waiting::{self, LockId};

use super::args::Call;
use super::info::milliseconds;

pub struct Queue;

impl Command for Queue {
    const NAME: &'static str = "fairlock.queue";
    const DOCS: Docs = Docs {
        flags: c"readonly",
        categories: c"read slow",
        syntax: "key [LIMIT offset count]",
        summary: c"Lists the waiters in order.",
        complexity: c"O(offset+count)",
        keys: Some(Keys::Read),
        reply: &[
            "Each waiter: owner, blocked or polling, ms to its deadline (-1 if blocked), limit (1: exclusive).",
        ],
    };
    const OPTIONS: &'static [&'static str] = &["LIMIT"];

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let (offset, count) = call.limit.unwrap_or((0, usize::MAX));
        let (id, now) = (LockId::new(ctx.db(), call.lock), waiting::now());
        let waiters = view::waiters(ctx, &Names::of(call.lock), offset, count, now)?;
        let waiters = waiters.into_iter().map(|(owner, left)| {
            let waiter = waiting::known(&id, |tracked| tracked.line.get(owner.as_slice()));
            let (state, left) = match waiter.map(|waiter| (waiter.presence, waiter.deadline)) {
                Some((Presence::Blocked(_), _)) => ("blocked", None),
                Some((Presence::Polling | Presence::Asked, deadline)) => {
                    ("polling", Some(now.left_until(deadline)))
                }
                // Only its score is known.
                _ => ("polling", Some(left)),
            };
            let limit = waiter.map_or(Limit::EXCLUSIVE, |waiter| waiter.terms.limit);
            Reply::Array(vec![
                Reply::Bytes(owner.as_slice().to_vec()),
                Reply::Bytes(state.into()),
                milliseconds(left),
                Reply::number(limit.shown()),
            ])
        });
        Ok(Reply::Array(waiters.collect()))
    }
}
