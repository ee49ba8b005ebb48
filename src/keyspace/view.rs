//! Reading a lock without changing anything: what QUEUE, INFO, LOCKS and HOLDERS show, on replicas too.
//!
//! A lock can have a million holders. No more than [`MOST_READ`] are read for one reply, so that other clients
//! do not wait for it.

use crate::error::Error;
use crate::lock::{Holder, Limit, Millis, Now, Terms, Wall};
use crate::server::{Access, Ctx, Key, Kind, Str, string};

use super::fields::{exclusive, read_entry, token_of};
use super::names::Names;
use super::number::{instant, number};

/// The most holders that are read for one reply: a millisecond of the server's time.
pub const MOST_READ: usize = 1000;

/// A holder as the keys say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderView {
    pub owner: Vec<u8>,
    /// Its hold count; 0 if the field is not a number.
    pub holds: i64,
    pub lease: Option<Millis>,
    pub token: Option<i64>,
    pub terms: Terms,
}

/// A field of a hash.
type Field = (Vec<u8>, Vec<u8>);

impl HolderView {
    /// Of an owner's field in the lock's hash, and what else is said of it.
    fn new((owner, holds): Field, end: Option<Wall>, said: Option<Holder>, now: Now) -> Self {
        Self {
            owner,
            holds: number(&holds).unwrap_or(0),
            lease: end.map(|end| end.since(now.wall())),
            token: said.as_ref().and_then(Holder::given_token),
            terms: said.map_or(Terms::UNKNOWN, |said| said.terms),
        }
    }
}

/// A lock as its keys say.
#[derive(Default)]
pub struct LockView {
    /// One of its holders: of several, the one with the smallest token, of those that were read.
    pub holder: Option<HolderView>,
    pub holders: usize,
    pub read: usize,
    /// How many holders all of them tolerate, as far as they were read; none if the lock is free.
    pub limit: Option<Limit>,
    pub waiting: usize,
    pub next: Option<Vec<u8>>,
}

fn open<'c>(ctx: &'c Ctx, name: &'c Str, kind: &Kind) -> Result<Key<'c>, Error> {
    let key = ctx.open(name, Access::Read);
    if key.fits(kind) {
        Ok(key)
    } else {
        Err(Error::WRONG_TYPE)
    }
}

/// Reads a lock and at most a given number of its holders.
pub fn lock(ctx: &Ctx, names: &Names, most: usize, now: Now) -> Result<LockView, Error> {
    let mut queue = open(ctx, &names.queue, &Kind::List)?;
    open(ctx, &names.deadlines, &Kind::ZSet)?;
    let (holders, number) = holders(ctx, names, most, now)?;
    Ok(LockView {
        holders: number,
        read: holders.len(),
        limit: holders.iter().map(|holder| holder.terms.limit).min(),
        holder: holders.into_iter().min_by_key(|holder| holder.token),
        waiting: queue.len(),
        next: queue.list_get(0).map(|owner| owner.as_slice().to_vec()),
    })
}

/// The holders of a lock, about `most` of them, in the order of their tokens: in which they became holders. And
/// the number of all holders.
pub fn holders(
    ctx: &Ctx,
    names: &Names,
    most: usize,
    now: Now,
) -> Result<(Vec<HolderView>, usize), Error> {
    let lock = open(ctx, &names.lock, &Kind::Hash)?;
    let shared = open(ctx, &names.shared, &Kind::Hash)?;
    let mut fields = if shared.is_empty() {
        Vec::new()
    } else {
        lock.some_hash_fields(most.saturating_add(1))
    };
    // The token's.
    fields.retain(|(owner, _)| !owner.is_empty());
    // The entries may be those of the lock with the same queue.
    let is_shared = |(owner, _): &Field| shared.hash_get(&string(owner)).is_some();
    if fields.iter().any(is_shared) {
        let number = lock.len() - usize::from(token_of(&lock).is_some());
        let read = fields.len();
        let holders = shared_holders(fields, &shared, now);
        let over = read - holders.len();
        return Ok((holders, number.saturating_sub(over)));
    }
    let end = lock.expires_at().map(Wall::of);
    let field = lock.hash_named();
    let holder = field.map(|field| HolderView::new(field, end, exclusive(&lock), now));
    let number = usize::from(holder.is_some());
    Ok((holder.into_iter().collect(), number))
}

/// Those whose lease is not over, as of a key that has expired: a server that may not write still has both.
fn shared_holders(fields: Vec<Field>, shared: &Key<'_>, now: Now) -> Vec<HolderView> {
    let view = |field: Field| {
        let text = shared.hash_get(&string(&field.0));
        let entry = text.and_then(|text| read_entry(text.as_slice()));
        let end = entry.as_ref().map(|holder| holder.lease_end);
        HolderView::new(field, end, entry, now)
    };
    let holders = fields.into_iter().map(view);
    let mut holders: Vec<_> = holders.filter(|holder| holder.lease != Some(0)).collect();
    holders.sort_by(|one, other| (one.token, &one.owner).cmp(&(other.token, &other.owner)));
    holders
}

/// Waiters in order from a 0-based position, each with the milliseconds to its deadline: 0 if
/// that is over or missing.
pub fn waiters(
    ctx: &Ctx,
    names: &Names,
    offset: usize,
    count: usize,
    now: Now,
) -> Result<Vec<(Str, Millis)>, Error> {
    open(ctx, &names.lock, &Kind::Hash)?;
    let mut queue = open(ctx, &names.queue, &Kind::List)?;
    let deadlines = open(ctx, &names.deadlines, &Kind::ZSet)?;
    let end = queue.len().min(offset.saturating_add(count));
    let waiters = (offset..end)
        .map_while(|index| queue.list_get(index))
        .map(|owner| {
            let deadline = deadlines.score(&owner).map_or_else(Wall::default, instant);
            (owner, deadline.since(now.wall()))
        });
    Ok(waiters.collect())
}
