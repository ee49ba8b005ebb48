//! `FAIRLOCK.INFO`: one lock. Of several holders, `owner` to `session` are those of the first one ([`super::holders`]
//! lists all); at most 1000 of them are read, and of more, `owner` is one of those.

use crate::keyspace::view::{LockView, MOST_READ};
use crate::keyspace::{Names, view};
use crate::lock::{Limit, Millis};
use crate::server::docs::{Docs, Keys};
use crate::server::{Args, Command, Ctx, Reply};
use crate::waiting::{self, LockId};

use super::args::Call;

pub struct Info;

impl Command for Info {
    const NAME: &'static str = "fairlock.info";
    const DOCS: Docs = Docs {
        flags: c"readonly fast",
        categories: c"read fast",
        syntax: "key",
        summary: c"Shows who holds a lock, for how long, and who is next.",
        complexity: c"O(H) with H the number of holders, 1000 at most",
        keys: Some(Keys::Read),
        reply: &["owner, holds, lease, token, session, waiting, next, holders, limit."],
    };

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let id = LockId::new(ctx.db(), call.lock);
        let view = view::lock(ctx, &Names::of(call.lock), MOST_READ, waiting::now())?;
        Ok(Reply::Map(fields(&id, view)))
    }
}

pub fn fields(id: &LockId, view: LockView) -> Vec<(&'static str, Reply)> {
    let limit = limit(id, &view).map_or(0, Limit::shown);
    let holder = view.holder;
    let is_session = holder.as_ref();
    let is_session = is_session.is_some_and(|holder| waiting::is_session(id, &holder.owner));
    let (holds, lease, token) = match &holder {
        Some(of) => (of.holds, milliseconds(of.lease), of.token),
        None => (0, Reply::Integer(0), None),
    };
    vec![
        (
            "owner",
            Reply::or_nil(holder, |holder| Reply::Bytes(holder.owner)),
        ),
        ("holds", Reply::Integer(holds)),
        ("lease", lease),
        ("token", Reply::or_nil(token, Reply::Integer)),
        ("session", Reply::Bool(is_session)),
        ("waiting", Reply::number(view.waiting)),
        ("next", Reply::or_nil(view.next, Reply::Bytes)),
        ("holders", Reply::number(view.holders)),
        ("limit", Reply::number(limit)),
    ]
}

/// How many holders all holders tolerate: by this server's record, where not all of them were read.
fn limit(id: &LockId, view: &LockView) -> Option<Limit> {
    let is_cut_short = view.read < view.holders;
    let known = is_cut_short
        .then(|| waiting::known(id, |tracked| Some(tracked.shared.as_ref()?.least_limit())));
    known.flatten().or(view.limit)
}

/// The time that is left of a lease, or until a deadline: -1 for none.
pub(super) fn milliseconds(left: Option<Millis>) -> Reply {
    left.map_or(Reply::Integer(-1), Reply::number)
}
