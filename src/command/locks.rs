//! `FAIRLOCK.LOCKS`: the locks of the selected database that this server tracks, because they have waiters or a session
//! or are held SHARED. A replica tracks none; in a cluster each server shows its own.
//!
//! A cursor is the number of the last lock's record, so the server remembers nothing of a listing. As with SCAN, a lock
//! that is there during the whole listing is listed at least once.
//!
//! Scripts cannot call it, because the server does not tell a script's user. Locks that are only held have no record,
//! which would make every acquisition dearer. So that other clients do not wait, a reply ends with `more` once 1000
//! holders or locks were read, also before `count` locks are found.

use crate::keyspace::Names;
use crate::keyspace::view::{self, LockView, MOST_READ};
use crate::lock::Now;
use crate::server::docs::Docs;
use crate::server::{Args, Command, Ctx, Reply};
use crate::waiting::{self, LockId};

use super::args::Call;
use super::info;

const DEFAULT_COUNT: usize = 100;
/// Holders of one lock that are read.
const HOLDERS: usize = 100;

pub struct Locks;

impl Command for Locks {
    const NAME: &'static str = "fairlock.locks";
    const DOCS: Docs = Docs {
        flags: c"readonly deny-script",
        categories: c"read slow",
        syntax: "[COUNT count] [AFTER cursor]",
        summary: c"Lists the locks with waiters, a session or SHARED holders.",
        complexity: c"O(log(N)+count) with N the number of such locks",
        keys: None,
        reply: &[
            "What INFO says of each, its name, and held: ms since the holder got it (-1: not known).",
            "Last, if there are more: the cursor for AFTER.",
        ],
    };
    const OPTIONS: &'static [&'static str] = &["COUNT", "AFTER"];

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let call = Call::of::<Self>(ctx, *arguments)?;
        let count = call.count.unwrap_or(DEFAULT_COUNT);
        let (now, db) = (waiting::now(), ctx.db());
        let (mut locks, mut read, mut last) = (Vec::new(), 0, call.after.unwrap_or(0));
        for (number, name) in waiting::locks_behind(db, last, MOST_READ + 1) {
            if locks.len() >= count || read >= MOST_READ {
                let cursor = Reply::Bytes(last.to_string().into_bytes());
                let more = (count > 0).then(|| Reply::Map(vec![("more", cursor)]));
                locks.extend(more);
                break;
            }
            let id = LockId { db, name };
            let view = view(ctx, &id.name, now);
            read += view.as_ref().map_or(1, |view| view.read.max(1));
            locks.extend(view.map(|view| shown(&id, view, now)));
            last = number;
        }
        Ok(Reply::Array(locks))
    }
}

/// A lock, if the user may read it and its keys are those of a lock.
fn view(ctx: &Ctx, name: &[u8], now: Now) -> Option<LockView> {
    let names = Names::of(name);
    let may = ctx.may_read(&names.lock);
    let view = may.then(|| view::lock(ctx, &names, HOLDERS, now))?;
    let mut view = view.ok()?;
    if view.waiting > 0 && !waiting::has_queue(ctx, name) {
        (view.waiting, view.next) = (0, None);
    }
    Some(view)
}

fn shown(id: &LockId, view: LockView, now: Now) -> Reply {
    let held = view.holder.as_ref().map_or(Reply::Integer(0), |holder| {
        let held = waiting::held_for(id, &holder.owner, now);
        info::milliseconds(held.map(|micros| micros / 1000))
    });
    let mut fields = vec![("name", Reply::Bytes(id.name.to_vec()))];
    fields.extend(info::fields(id, view));
    fields.push(("held", held));
    Reply::Map(fields)
}
