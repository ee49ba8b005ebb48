//! `FAIRLOCK.INFO key`
//!
//! A map (RESP2: a flat array) of one lock. Of several holders, `owner` to `session` are those of the first
//! one ([`super::holders`] lists all):
//!
//! - `owner`: the holder, nil when the lock is free;
//! - `holds`: its hold count, 0 when free;
//! - `lease`: milliseconds until the lock frees itself; 0 when free, -1 if it is held without one;
//! - `token`: the holder's fencing token, nil if it has none;
//! - `session`: whether the lock is bound to a connection (RESP2: 1 or 0);
//! - `waiting`: number of waiters;
//! - `next`: the head of the queue, nil if there is no waiter;
//! - `holders`: number of holders;
//! - `limit`: how many holders all holders tolerate, 1 if the lock is held exclusively; 0 when free, or if they
//!   tolerate any number.
//!
//! Read-only, O(H) with H the number of holders, and at most 1000 of them: of more, `owner` is one of those that were
//! read.

use std::ffi::CStr;

use crate::error::Error;
use crate::keyspace::view::{LockView, MOST_READ};
use crate::keyspace::{Names, view};
use crate::lock::{Limit, Millis};
use crate::server::docs::{Docs, KeyUse, Keys};
use crate::server::{Args, Command, Ctx};
use crate::waiting::{self, LockId};

use super::args::Call;

/// The number of these fields.
pub const FIELDS: usize = 9;

/// The command.
#[derive(Debug)]
pub struct Info;

impl Command for Info {
    const NAME: &'static str = "fairlock.info";
    const FLAGS: &'static CStr = c"readonly fast";
    const DOCS: Docs = Docs {
        syntax: "key",
        summary: c"Shows who holds a lock, for how long, and who is next.",
        complexity: c"O(H) with H the number of holders, 1000 at most",
        since: c"0.1.0",
        keys: Some(Keys::First(KeyUse::Read)),
        reply: &["owner, holds, lease, token, session, waiting, next, holders, limit."],
    };
    const CATEGORIES: &'static CStr = c"read fast";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let id = LockId::new(ctx.db(), call.lock);
        let view = view::lock(ctx, &Names::of(call.lock), MOST_READ, waiting::now())?;
        ctx.reply_map(FIELDS);
        fields(ctx, &id, &view);
        Ok(())
    }
}

/// Replies the fields of a lock, each after its name.
pub fn fields(ctx: &Ctx, id: &LockId, view: &LockView) {
    let holder = view.holder.as_ref();
    ctx.reply_bytes(b"owner");
    bytes_or_nil(ctx, holder.map(|holder| holder.owner.as_slice()));
    ctx.reply_bytes(b"holds");
    ctx.reply_integer(holder.map_or(0, |holder| holder.holds));
    ctx.reply_bytes(b"lease");
    ctx.reply_integer(holder.map_or(0, |holder| milliseconds(holder.lease)));
    ctx.reply_bytes(b"token");
    integer_or_nil(ctx, holder.and_then(|holder| holder.token));
    ctx.reply_bytes(b"session");
    ctx.reply_bool(holder.is_some_and(|holder| waiting::is_session(id, &holder.owner)));
    ctx.reply_bytes(b"waiting");
    ctx.reply_integer(i64::try_from(view.waiting).unwrap_or(i64::MAX));
    ctx.reply_bytes(b"next");
    bytes_or_nil(ctx, view.next.as_deref());
    ctx.reply_bytes(b"holders");
    ctx.reply_integer(i64::try_from(view.holders).unwrap_or(i64::MAX));
    ctx.reply_bytes(b"limit");
    ctx.reply_integer(limit(id, view).map_or(0, Limit::shown).into());
}

/// How many holders all holders tolerate: by this server's record, where not all of them were read.
fn limit(id: &LockId, view: &LockView) -> Option<Limit> {
    let is_cut_short = view.read < view.holders;
    let known = is_cut_short.then(|| waiting::shared_limit(id));
    known.flatten().or(view.limit)
}

/// A holder's lease: -1 for none.
pub(super) fn milliseconds(lease: Option<Millis>) -> i64 {
    lease.map_or(-1, |lease| i64::try_from(lease).unwrap_or(i64::MAX))
}

pub(super) fn integer_or_nil(ctx: &Ctx, number: Option<i64>) {
    match number {
        Some(number) => ctx.reply_integer(number),
        None => ctx.reply_nil(),
    }
}

fn bytes_or_nil(ctx: &Ctx, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => ctx.reply_bytes(bytes),
        None => ctx.reply_nil(),
    }
}
