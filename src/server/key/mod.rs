//! Direct access to one key. Nothing here replicates or raises key events: `keyspace` does.
//!
//! This file has what all types have in common, [`values`] what each of them has.
//!
//! Methods do nothing, or find nothing, on a key of another type; callers look at
//! [`Key::kind`] first.
//!
//! A handle is null where the key does not exist and was opened for reading, and empty where it was opened for writing
//! or was deleted since. Which functions may be given such a handle, by the sources of Redis 7.0.15, 8.0.2 and 8.6.3
//! and of Valkey 8.1.1 and 9.1.2, which agree but for one:
//!
//! | | null | empty |
//! |---|---|---|
//! | `CloseKey`, `KeyType`, `ValueLength`, `ScanKey`, `GetDbIdFromModuleKey` | may | may |
//! | `ListGet`, `ListPush`, `ListDelete`, `HashSet` | refused | may |
//! | `GetAbsExpire` | crashes | may, but crashes Redis 8.6 |
//! | all others that take a handle | crash | may |
//!
//! `SetAbsExpire` can move the value on Redis 8.6 and Valkey: other handles of the same key are not valid any more.

use std::borrow::Cow;
use std::cell::Cell;
use std::ptr::null_mut;

pub use redis_module::KeyType as Kind;

use super::api::{api, raw};
use super::context::{Ctx, db_at};
use super::memory::Str;

mod values;

use values::ListCursor;

/// What a key is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading; works on replicas. The key does not count as used: neither for eviction nor, since Redis 7.2, in the
    /// server's hits. The first change opens the key again, for writing.
    Read,
    /// Reading and writing.
    Write,
}

/// An open key; closed when dropped.
///
/// A change through one handle invalidates all other handles of the same key, so code that changes a key
/// must use a single handle.
pub struct Key<'c> {
    /// Null where a key opened for reading does not exist, as in most steps the queue.
    raw: *mut raw::RedisModuleKey,
    ctx: &'c Ctx,
    name: Cow<'c, Str>,
    access: Access,
    /// Where in a list the handle stands.
    cursor: ListCursor,
    /// It has come there by a step.
    has_stepped: bool,
    /// WATCH and client-side caches have been told that the value has changed.
    has_reported: Cell<bool>,
}

impl Ctx {
    /// Opens a key of the selected database. An expired key is deleted by the server first.
    pub fn open<'c>(&'c self, name: &'c Str, access: Access) -> Key<'c> {
        self.open_named(Cow::Borrowed(name), access)
    }

    /// Whether a key is there, of whatever type. Does not count as a use of it.
    pub fn has_key(&self, name: &Str) -> bool {
        !self.open(name, Access::Read).is_empty()
    }

    /// As [`Ctx::open`], where the name is kept nowhere else.
    pub fn open_named<'c>(&'c self, name: Cow<'c, Str>, access: Access) -> Key<'c> {
        Key {
            raw: open(self, &name, access),
            ctx: self,
            name,
            access,
            cursor: None,
            has_stepped: false,
            has_reported: Cell::new(false),
        }
    }
}

fn open(ctx: &Ctx, name: &Str, access: Access) -> *mut raw::RedisModuleKey {
    let mode = match access {
        Access::Read => {
            raw::REDISMODULE_READ
                | raw::REDISMODULE_OPEN_KEY_NOTOUCH
                | raw::REDISMODULE_OPEN_KEY_NOSTATS
        }
        Access::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
    };
    // SAFETY: context and name are valid; the handle is kept by a `Key`, which cannot outlive the
    // context's borrow.
    unsafe { api!(OpenKey(ctx.raw, name.inner, mode.cast_signed())) }
}

fn close(key: *mut raw::RedisModuleKey) {
    if !key.is_null() {
        // SAFETY: the handle came from OpenKey, and its `Key` gives it up with this.
        unsafe { api!(CloseKey(key)) };
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        close(self.raw);
    }
}

impl<'c> Key<'c> {
    pub fn ctx(&self) -> &'c Ctx {
        self.ctx
    }

    pub fn name(&self) -> &Str {
        &self.name
    }

    /// Tells WATCH and client-side caches that the key has changed: once for several changes in a row, because no
    /// client can read in between. A key that was deleted and is made anew has changed twice.
    pub fn tell_of_change(&self) {
        let is_there = !self.is_empty();
        if !(self.has_reported.replace(is_there) && is_there) {
            self.ctx.changed(&self.name);
        }
    }

    /// Opens the key for writing, if it is not yet. Every method that changes a key calls this first.
    fn make_writable(&mut self) {
        if self.access != Access::Write {
            self.access = Access::Write;
            self.open_again();
        }
    }

    fn open_again(&mut self) {
        self.cursor = None;
        self.has_stepped = false;
        close(self.raw);
        self.raw = open(self.ctx, &self.name, self.access);
    }

    /// The database that it is in. `None` if there is no such key.
    pub fn db(&self) -> Option<i32> {
        // SAFETY: an open handle, or null.
        let db = unsafe { api!(GetDbIdFromModuleKey(self.raw)) };
        (db >= 0).then(|| db_at(db))
    }

    /// The type of the value. Empty if there is no such key, or it has expired.
    pub fn kind(&self) -> Kind {
        if self.raw.is_null() {
            return Kind::Empty;
        }
        // SAFETY: an open handle.
        match unsafe { api!(KeyType(self.raw)) } {
            kind @ 0..=7 => kind.into(),
            // One that redis-module does not know.
            _ => Kind::Module,
        }
    }

    /// Whether the key is of a type, or could become so: there is none.
    pub fn fits(&self, kind: &Kind) -> bool {
        let found = self.kind();
        found == *kind || found == Kind::Empty
    }

    /// Number of elements, fields or bytes; 0 for no key.
    pub fn len(&self) -> usize {
        if self.raw.is_null() {
            return 0;
        }
        // SAFETY: an open handle.
        unsafe { api!(ValueLength(self.raw)) }
    }

    /// Whether there is no such key.
    pub fn is_empty(&self) -> bool {
        self.kind() == Kind::Empty
    }

    pub fn delete(&mut self) {
        self.make_writable();
        // The server would keep a cursor in a list that is not there any more.
        self.stand_nowhere();
        // SAFETY: an open handle; DeleteKey refuses one that is not open for writing.
        unsafe { api!(DeleteKey(self.raw)) };
    }

    /// The instant at which the key expires, in milliseconds since the Unix epoch.
    pub fn expires_at(&self) -> Option<u64> {
        // Redis 8.2 to 8.6 read through a null pointer where the key is open and empty.
        if self.is_empty() {
            return None;
        }
        // SAFETY: an open handle of a key that exists.
        let at = unsafe { api!(GetAbsExpire(self.raw)) };
        u64::try_from(at).ok()
    }

    /// Sets that instant; `None`: the key never expires.
    pub fn set_expires_at(&mut self, at: Option<u64>) {
        self.make_writable();
        let never = raw::REDISMODULE_NO_EXPIRE.into();
        let at = at.map_or(never, |at| i64::try_from(at).unwrap_or(i64::MAX));
        // SAFETY: an open handle; SetAbsExpire refuses an empty key.
        unsafe { api!(SetAbsExpire(self.raw, at)) };
    }
}

/// Takes over the reference to a string that the server made for the module.
pub(super) fn adopt(string: *mut raw::RedisModuleString) -> Option<Str> {
    if string.is_null() {
        return None;
    }
    Some(Str::from_redis_module_string(null_mut(), string))
}
