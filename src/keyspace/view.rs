//! Reading a lock without changing anything: what QUEUE and INFO show, on replicas too.

use crate::error::Error;
use crate::lock::{Millis, Now};
use crate::server::{Access, Ctx, Key, Kind, Str};

use super::Names;
use super::open_lock::{self, instant, number};

/// A lock as its keys say.
#[derive(Debug, Default)]
pub struct LockView {
    /// The holder and its hold count; a count that is no number reads as 0.
    pub holder: Option<(Vec<u8>, i64)>,
    /// Milliseconds until the lock frees itself, if it is held and has a lease.
    pub lease: Option<Millis>,
    /// The holder's fencing token, if it has one.
    pub token: Option<i64>,
    /// Number of waiters.
    pub waiting: usize,
    /// The head of the queue.
    pub next: Option<Vec<u8>>,
}

fn open<'c>(ctx: &'c Ctx, name: &'c Str, kind: Kind) -> Result<Key<'c>, Error> {
    let key = ctx.open(name, Access::Read);
    if key.fits(kind) {
        Ok(key)
    } else {
        Err(Error::WrongType)
    }
}

/// Reads a lock.
///
/// # Errors
/// [`Error::WrongType`] if the lock, queue or deadline key holds something else.
pub fn lock(ctx: &Ctx, names: &Names, now: Now) -> Result<LockView, Error> {
    let lock = open(ctx, &names.lock, Kind::Hash)?;
    let mut queue = open(ctx, &names.queue, Kind::List)?;
    open(ctx, &names.deadlines, Kind::SortedSet)?;
    let holder = lock
        .hash_named()
        .map(|(owner, holds)| (owner, number(&holds).unwrap_or(0)));
    Ok(LockView {
        lease: lock
            .expires_at()
            .filter(|_| holder.is_some())
            .map(|end| end.saturating_sub(now.millis())),
        token: open_lock::token_of(&lock),
        waiting: queue.len(),
        next: queue.list_get(0).map(|owner| owner.as_slice().to_vec()),
        holder,
    })
}

/// Waiters in order from a 0-based position, each with the milliseconds to its deadline: 0 if
/// that is over or missing.
///
/// # Errors
/// [`Error::WrongType`] if the lock, queue or deadline key holds something else.
pub fn waiters(
    ctx: &Ctx,
    names: &Names,
    offset: usize,
    count: usize,
    now: Now,
) -> Result<Vec<(Str, Millis)>, Error> {
    open(ctx, &names.lock, Kind::Hash)?;
    let mut queue = open(ctx, &names.queue, Kind::List)?;
    let deadlines = open(ctx, &names.deadlines, Kind::SortedSet)?;
    let end = queue.len().min(offset.saturating_add(count));
    let waiters = (offset..end)
        .map_while(|index| queue.list_get(index))
        .map(|owner| {
            let deadline = deadlines.score(&owner).map_or(0, instant);
            (owner, deadline.saturating_sub(now.millis()))
        });
    Ok(waiters.collect())
}
