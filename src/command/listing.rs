//! What FAIRLOCK.LOCKS lists: which locks, and where a reply ends.
//!
//! First come the locks that this server keeps a record of, because they have waiters or a session: the busiest
//! first. With ALL a walk over the keyspace follows, which finds every other lock that is held. A record of each
//! of them would make every acquisition dearer; the walk costs only those who ask.
//!
//! A reply ends when it has enough locks, or when the time is up for which other clients may wait. It then
//! has a [cursor](super::cursor) to go on with.

use std::collections::HashSet;
use std::rc::Rc;

use crate::error::Error;
use crate::keyspace::view::{self, LockView};
use crate::keyspace::{Names, is_held_lock};
use crate::lock::Now;
use crate::server::user::User;
use crate::server::{Ctx, string};
use crate::waiting::{self, Busy, LockId, Slice};

use super::cursor::{Place, hidden, shown, walk};

/// Locks that are listed at most.
const MOST: usize = 1000;
/// Locks with a record that are looked at, to find those that the user may read.
const LOOKED_AT: usize = 4 * MOST;
/// Locks that are looked at before the time counts, so that a reply on a slow machine has some, too.
const AT_LEAST: usize = 100;
/// Records that are taken from the table at once.
const CHUNK: usize = 100;
/// Keys that the server is asked for at once: a walk cannot stop before it has looked at all of them.
const STEP: usize = 20;
/// Holders of one lock that are read.
const HOLDERS: usize = 100;
/// So many holders take as long to read as a lock.
const HOLDERS_A_LOCK: usize = 8;

/// What is listed.
#[derive(Debug)]
pub struct Listing {
    /// The locks.
    pub locks: Vec<(LockId, LockView)>,
    /// The cursor of the rest, if there is any.
    pub more: Option<Vec<u8>>,
}

/// Lists about `count` locks from a place on; `all`: those without a record, too. A lock with a key of another type
/// is not listed.
///
/// # Errors
/// [`Error::Renamed`] if the keyspace cannot be walked.
pub fn list(
    ctx: &Ctx,
    all: bool,
    count: usize,
    after: Option<Place>,
    now: Now,
) -> Result<Listing, Error> {
    let mut search = Search::new(ctx, count, now);
    let more = match after {
        Some(Place::Walk(cursor)) => search.walk(cursor)?,
        Some(Place::Behind(place)) => search.begin(Some(place), all)?,
        None => search.begin(None, all)?,
    };
    Ok(Listing {
        locks: search.found,
        more,
    })
}

/// Who asks.
enum Caller {
    /// A connection's user; none if it was deleted.
    User(Option<User>),
    /// Another module, which has no connection and may do everything.
    Module,
}

impl Caller {
    fn of(ctx: &Ctx) -> Self {
        let name = ctx.user_name();
        name.map_or(Self::Module, |name| Self::User(User::named(&name)))
    }

    fn may_read(&self, lock: &[u8]) -> bool {
        match self {
            Self::User(user) => user
                .as_ref()
                .is_some_and(|user| user.may_read(&string(lock))),
            Self::Module => true,
        }
    }
}

/// A search for locks that the caller may read.
struct Search<'c> {
    ctx: &'c Ctx,
    db: i32,
    caller: Caller,
    count: usize,
    now: Now,
    slice: Slice,
    found: Vec<(LockId, LockView)>,
    /// The names of those: a walk meets them again.
    names: HashSet<Rc<[u8]>>,
    /// Locks that were looked at.
    looked: usize,
    /// How much was read for that, in locks with one holder.
    work: usize,
}

impl<'c> Search<'c> {
    fn new(ctx: &'c Ctx, count: usize, now: Now) -> Self {
        Self {
            ctx,
            db: ctx.db(),
            caller: Caller::of(ctx),
            count: count.min(MOST),
            now,
            slice: Slice::begin_search(),
            found: Vec::new(),
            names: HashSet::new(),
            looked: 0,
            work: 0,
        }
    }

    /// Whether the rest is left to the next reply.
    fn is_full(&self) -> bool {
        self.found.len() >= self.count || (self.work >= AT_LEAST && self.slice.is_over())
    }

    /// Goes through the records behind a place, and then through the keyspace. The cursor of what is left, if
    /// anything is.
    fn begin(&mut self, after: Option<Busy>, all: bool) -> Result<Option<Vec<u8>>, Error> {
        match self.records(after) {
            None if all => self.walk(0),
            more => Ok(more),
        }
    }

    fn records(&mut self, mut after: Option<Busy>) -> Option<Vec<u8>> {
        loop {
            let chunk = waiting::busiest(self.db, after.as_ref(), CHUNK);
            let is_last = chunk.len() < CHUNK;
            for (waiters, name) in chunk {
                if self.is_full() || self.looked == LOOKED_AT {
                    return after.map(|place| self.word(place));
                }
                self.look_at(&name);
                after = Some((waiters, name));
            }
            if is_last {
                return None;
            }
        }
    }

    /// The cursor for a place, without the name of a lock that is not shown.
    fn word(&self, place: Busy) -> Vec<u8> {
        if self.names.contains(&place.1) {
            shown(&place)
        } else {
            hidden(place)
        }
    }

    /// Looks at all keys from a place on. At least one step is taken, so that whoever goes on comes to an end.
    fn walk(&mut self, mut cursor: u64) -> Result<Option<Vec<u8>>, Error> {
        while !self.is_full() {
            let found = self.ctx.scan_hashes(cursor, STEP);
            let found = found.ok_or(Error::Renamed("SCAN"))?;
            self.work += STEP;
            for key in found.items {
                if self.is_new(&key) {
                    self.look_at(&Rc::from(key));
                }
            }
            cursor = found.next;
            if cursor == 0 {
                return Ok(None);
            }
        }
        Ok(Some(walk(cursor)))
    }

    /// Whether a key is a lock that is held here, and is not listed yet.
    fn is_new(&self, key: &[u8]) -> bool {
        !self.names.contains(key)
            && is_held_lock(self.ctx, key)
            && waiting::is_served_here(self.ctx, key)
    }

    fn look_at(&mut self, name: &Rc<[u8]>) {
        self.looked += 1;
        self.work += 1;
        let Some(view) = self.view(name) else { return };
        self.work += view.read / HOLDERS_A_LOCK;
        self.names.insert(Rc::clone(name));
        let id = LockId {
            db: self.db,
            name: Rc::clone(name),
        };
        self.found.push((id, view));
    }

    /// A lock, if the user may read it and all that its queue is shared with.
    fn view(&self, name: &[u8]) -> Option<LockView> {
        // The reply shows what is in the queue, which another lock may share.
        let twin = waiting::shares_queue_with(self.ctx, name);
        let mut all = std::iter::once(name).chain(twin.as_deref());
        all.all(|lock| self.caller.may_read(lock))
            .then(|| view::lock(self.ctx, &Names::of(name), HOLDERS, self.now))?
            .ok()
    }
}
