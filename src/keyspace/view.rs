//! Reading a lock without changing anything: what QUEUE, INFO and HOLDERS show, on replicas too.

use crate::error::Error;
use crate::lock::{Limit, Millis, Now, SharedHolder};
use crate::server::{Access, Ctx, Key, Kind, Str, string};

use super::Names;
use super::number::{instant, number};
use super::open_lock::token_of;
use super::shared::read_entry;

/// A holder as the keys say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderView {
    /// Its name.
    pub owner: Vec<u8>,
    /// Its hold count; one that is no number reads as 0.
    pub holds: i64,
    /// Milliseconds until its lease ends, if it has one.
    pub lease: Option<Millis>,
    /// Its fencing token, if it has one.
    pub token: Option<i64>,
    /// How many holders it tolerates.
    pub limit: Limit,
}

/// A lock as its keys say.
#[derive(Debug, Default)]
pub struct LockView {
    /// One of its holders: of several, the one with the smallest token.
    pub holder: Option<HolderView>,
    /// Number of holders.
    pub holders: usize,
    /// How many holders all of them tolerate; none if the lock is free.
    pub limit: Option<Limit>,
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
/// [`Error::WrongType`] if a key of the lock holds something else.
pub fn lock(ctx: &Ctx, names: &Names, now: Now) -> Result<LockView, Error> {
    let mut queue = open(ctx, &names.queue, Kind::List)?;
    open(ctx, &names.deadlines, Kind::SortedSet)?;
    let holders = holders(ctx, names, now)?;
    Ok(LockView {
        holders: holders.len(),
        limit: holders.iter().map(|holder| holder.limit).min(),
        holder: holders.into_iter().min_by_key(|holder| holder.token),
        waiting: queue.len(),
        next: queue.list_get(0).map(|owner| owner.as_slice().to_vec()),
    })
}

/// The holders of a lock, in the order of their tokens: in which they became holders.
///
/// # Errors
/// [`Error::WrongType`] if a key of the lock holds something else.
pub fn holders(ctx: &Ctx, names: &Names, now: Now) -> Result<Vec<HolderView>, Error> {
    let lock = open(ctx, &names.lock, Kind::Hash)?;
    let shared = open(ctx, names.shared(), Kind::Hash)?;
    if !lock.is_empty() && !shared.is_empty() {
        return Ok(shared_holders(&lock, &shared, now));
    }
    let end = lock.expires_at();
    let holder = lock.hash_named().map(|(owner, holds)| HolderView {
        owner,
        holds: number(&holds).unwrap_or(0),
        lease: end.map(|end| end.saturating_sub(now.millis())),
        token: token_of(&lock),
        limit: Limit::EXCLUSIVE,
    });
    Ok(holder.into_iter().collect())
}

fn shared_holders(lock: &Key<'_>, shared: &Key<'_>, now: Now) -> Vec<HolderView> {
    let entry = |owner: &[u8]| {
        let text = shared.hash_get(&string(owner))?;
        read_entry(text.as_slice())
    };
    let view = |(owner, holds): (Vec<u8>, Vec<u8>)| {
        let entry = entry(&owner);
        let end = entry.as_ref().map(|holder| holder.lease_end);
        HolderView {
            holds: number(&holds).unwrap_or(0),
            lease: end.map(|end| end.saturating_sub(now.millis())),
            token: entry.as_ref().and_then(SharedHolder::given_token),
            limit: entry.map_or(Limit::EXCLUSIVE, |SharedHolder { limit, .. }| limit),
            owner,
        }
    };
    let fields = lock.hash_fields().into_iter();
    let named = fields.filter(|(owner, _)| !owner.is_empty());
    let mut holders: Vec<_> = named.map(view).collect();
    holders.sort_by(|one, other| (one.token, &one.owner).cmp(&(other.token, &other.owner)));
    holders
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
