//! What FAIRLOCK.LOCKS lists: which locks, and where a reply ends.
//!
//! First come the locks that this server keeps a record of, because they have waiters, a session or shared holders, in
//! the order of their numbers. With ALL a walk over the keyspace follows, which finds every other lock that is held. A
//! record of each of them would make every acquisition dearer; the walk costs only those who ask.
//!
//! A reply ends when it has enough locks, or when the time is up for which other clients may wait. The client then
//! goes on with a cursor, which is a number. So the server remembers nothing of a listing.

use std::collections::HashSet;
use std::rc::Rc;

use crate::error::Error;
use crate::keyspace::view::{self, LockView};
use crate::keyspace::{Names, is_held_lock};
use crate::lock::Now;
use crate::server::Ctx;
use crate::waiting::{self, LockId, SEARCH, Slice};

/// Locks that are listed at most.
const MOST: usize = 1000;
/// Locks that are looked at before the time counts, so that a reply on a slow machine has some, too.
const AT_LEAST: usize = 100;
/// Records that are taken from the table at once.
const RECORD_BATCH: usize = 100;
/// Keys that the server is asked for at once: a walk cannot stop before it has looked at all of them.
const SCAN_BATCH: usize = 20;
/// Holders of one lock that are read.
const HOLDERS: usize = 100;
/// How many holders take as long to read as a lock.
const HOLDERS_A_LOCK: usize = 8;

/// The bit that is set in the cursor of a listing that has come to the record of this number. All other cursors are
/// those of the server's SCAN, which are far smaller.
const RECORD: u64 = 1 << 63;

/// The locks that a reply lists, and the cursor of the rest, if there is any.
type Listed = (Vec<(LockId, LockView)>, Option<u64>);

/// Lists about `count` locks from a cursor on, 0 for the first; `all`: those without a record, too. A lock with a key
/// of another type is not listed.
///
/// # Errors
/// [`Error::after`]; [`Error::renamed`] if the keyspace cannot be walked.
pub fn list(ctx: &Ctx, all: bool, count: usize, after: u64, now: Now) -> Result<Listed, Error> {
    let mut search = Search::new(ctx, count, now);
    let is_walk = after > 0 && after & RECORD == 0;
    let more = if is_walk && all {
        search.walk(after)?
    } else if is_walk {
        return Err(Error::after("fairlock.locks without ALL"));
    } else {
        match search.records(after & !RECORD) {
            None if all => search.walk(0)?,
            more => more,
        }
    };
    Ok((search.found, more))
}

/// A search for locks that the caller may read.
struct Search<'c> {
    ctx: &'c Ctx,
    db: i32,
    count: usize,
    now: Now,
    slice: Slice,
    found: Vec<(LockId, LockView)>,
    /// The names of those: a walk meets them again.
    names: HashSet<Rc<[u8]>>,
    /// How much was read, in locks with one holder.
    work: usize,
}

impl<'c> Search<'c> {
    fn new(ctx: &'c Ctx, count: usize, now: Now) -> Self {
        Self {
            ctx,
            db: ctx.db(),
            count: count.min(MOST),
            now,
            slice: Slice::begin(SEARCH),
            found: Vec::new(),
            names: HashSet::new(),
            work: 0,
        }
    }

    /// Whether the rest is left to the next reply.
    fn is_full(&self) -> bool {
        self.found.len() >= self.count || (self.work >= AT_LEAST && self.slice.is_over())
    }

    /// Goes through the records behind one. The cursor of the rest, if there is any.
    fn records(&mut self, mut last: u64) -> Option<u64> {
        loop {
            let chunk = waiting::locks_behind(self.db, last, RECORD_BATCH);
            if chunk.is_empty() {
                return None;
            }
            for (number, name) in chunk {
                if self.is_full() {
                    return Some(last | RECORD);
                }
                self.look_at(name);
                last = number;
            }
        }
    }

    /// Looks at all keys from a place on. It takes at least one step, so that a caller that follows the cursor reaches
    /// the end.
    fn walk(&mut self, mut cursor: u64) -> Result<Option<u64>, Error> {
        loop {
            let found = self.ctx.scan(cursor, SCAN_BATCH, ["TYPE", "hash"]);
            let (keys, next) = found.ok_or_else(|| Error::renamed("SCAN"))?;
            self.work += SCAN_BATCH;
            for key in keys {
                if self.is_new(&key) {
                    self.look_at(Rc::from(key));
                }
            }
            cursor = next;
            if cursor == 0 || self.is_full() {
                return Ok(Some(cursor).filter(|cursor| *cursor > 0));
            }
        }
    }

    /// Whether a key is a lock that is held here, and is not listed yet.
    fn is_new(&self, key: &[u8]) -> bool {
        !self.names.contains(key)
            && is_held_lock(self.ctx, key)
            && waiting::is_served_here(self.ctx, key)
    }

    fn look_at(&mut self, name: Rc<[u8]>) {
        self.work += 1;
        let Some(view) = self.view(&name) else { return };
        self.work += view.read / HOLDERS_A_LOCK;
        self.names.insert(Rc::clone(&name));
        self.found.push((LockId { db: self.db, name }, view));
    }

    /// A lock, if the user may read it.
    fn view(&self, name: &[u8]) -> Option<LockView> {
        let names = Names::of(name);
        let may = self.ctx.may_read(&names.lock);
        let view = may.then(|| view::lock(self.ctx, &names, HOLDERS, self.now))?;
        let mut view = view.ok()?;
        if view.waiting > 0 && !waiting::has_queue(self.ctx, name) {
            (view.waiting, view.next) = (0, None);
        }
        Some(view)
    }
}
