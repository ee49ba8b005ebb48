//! Direct access to one key. Nothing here replicates or announces: that is the keyspace's task.
//!
//! Methods do nothing, or find nothing, on a key of another type; callers look at
//! [`Key::kind`] first.

use std::borrow::Cow;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use super::api::{OK, api, raw};
use super::{Ctx, Str};

/// What a key is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading; works on replicas. The first change opens the key again, for writing.
    Read,
    /// Reading and writing.
    Write,
}

/// The type of the value at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no such key, or it has expired.
    Empty,
    /// A string.
    String,
    /// A list.
    List,
    /// A hash.
    Hash,
    /// A sorted set.
    SortedSet,
    /// Anything else.
    Other,
}

/// An open key; closed when dropped.
///
/// What is done to a key through one handle, another handle of the same key does not notice, and
/// must not be used any more: code that changes a key keeps to one handle of it.
#[derive(Debug)]
pub struct Key<'c> {
    /// Null where a key opened for reading does not exist; the server's functions accept that.
    raw: *mut raw::RedisModuleKey,
    ctx: &'c Ctx,
    name: Cow<'c, Str>,
    access: Access,
    /// Where in a list the handle stands.
    cursor: ListCursor,
}

/// Where a handle stands in a list: the server's functions step from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListCursor {
    /// Nowhere: to any index it jumps.
    Nowhere,
    /// Where it jumped to.
    Jumped(usize),
    /// Where it stepped to.
    Stepped(usize),
    /// Where something was deleted.
    Deleted,
}

/// Steps in a list that cost less than opening the key again.
const NEAR: usize = 8;

impl Ctx {
    /// Opens a key of the selected database. An expired key is deleted by the server first.
    #[must_use]
    pub fn open<'c>(&'c self, name: &'c Str, access: Access) -> Key<'c> {
        self.open_named(Cow::Borrowed(name), access)
    }

    /// As [`Ctx::open`], where the name is kept nowhere else.
    #[must_use]
    pub fn open_named<'c>(&'c self, name: Cow<'c, Str>, access: Access) -> Key<'c> {
        Key {
            raw: open(self, &name, access),
            ctx: self,
            name,
            access,
            cursor: ListCursor::Nowhere,
        }
    }
}

fn open(ctx: &Ctx, name: &Str, access: Access) -> *mut raw::RedisModuleKey {
    let mode = match access {
        Access::Read => raw::REDISMODULE_READ,
        Access::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
    };
    // SAFETY: context and name are valid; the handle is kept by a `Key`, which cannot outlive the
    // context's borrow.
    unsafe { api!(OpenKey(ctx.raw, name.inner, mode)) }
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
    /// The context that it was opened in.
    #[must_use]
    pub fn ctx(&self) -> &'c Ctx {
        self.ctx
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Str {
        &self.name
    }

    /// Opens it for writing, if it is not yet: whatever changes a key calls this first.
    fn make_writable(&mut self) {
        if self.access == Access::Read {
            self.access = Access::Write;
            self.open_again();
        }
    }

    fn open_again(&mut self) {
        self.cursor = ListCursor::Nowhere;
        close(self.raw);
        self.raw = open(self.ctx, &self.name, self.access);
    }

    /// The type of the value.
    #[must_use]
    pub fn kind(&self) -> Kind {
        // SAFETY: KeyType accepts an open handle or null.
        let kind = unsafe { api!(KeyType(self.raw)) };
        match kind {
            raw::REDISMODULE_KEYTYPE_EMPTY => Kind::Empty,
            raw::REDISMODULE_KEYTYPE_STRING => Kind::String,
            raw::REDISMODULE_KEYTYPE_LIST => Kind::List,
            raw::REDISMODULE_KEYTYPE_HASH => Kind::Hash,
            raw::REDISMODULE_KEYTYPE_ZSET => Kind::SortedSet,
            _ => Kind::Other,
        }
    }

    /// Whether the key is of a type, or could become so: there is none.
    #[must_use]
    pub fn fits(&self, kind: Kind) -> bool {
        let found = self.kind();
        found == kind || found == Kind::Empty
    }

    /// Number of elements, fields or bytes; 0 for no key.
    #[must_use]
    pub fn len(&self) -> usize {
        // SAFETY: ValueLength accepts an open handle or null.
        unsafe { api!(ValueLength(self.raw)) }
    }

    /// Whether there is no such key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kind() == Kind::Empty
    }

    /// Deletes the key.
    pub fn delete(&mut self) {
        self.make_writable();
        // The server would keep a cursor in a list that is not there any more.
        self.stand_nowhere();
        // SAFETY: an open handle; DeleteKey refuses one that is not open for writing.
        unsafe { api!(DeleteKey(self.raw)) };
    }

    /// The instant at which the key expires, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: an open handle.
        let at = unsafe { api!(GetAbsExpire(self.raw)) };
        u64::try_from(at).ok()
    }

    /// Sets that instant.
    pub fn set_expires_at(&mut self, at: u64) {
        self.make_writable();
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        // SAFETY: an open handle; SetAbsExpire refuses an empty key.
        unsafe { api!(SetAbsExpire(self.raw, at)) };
    }

    /// Takes the expiry away.
    pub fn set_persistent(&mut self) {
        self.make_writable();
        let never = raw::REDISMODULE_NO_EXPIRE;
        // SAFETY: an open handle; SetAbsExpire refuses an empty key.
        unsafe { api!(SetAbsExpire(self.raw, never)) };
    }

    /// The value of a hash's field.
    #[must_use]
    pub fn hash_get(&self, field: &Str) -> Option<Str> {
        if self.raw.is_null() {
            return None;
        }
        let mut value: *mut raw::RedisModuleString = null_mut();
        // SAFETY: the arguments are pairs of a field and a cursor for its value, ended by null.
        unsafe {
            let (none, end) = (raw::REDISMODULE_HASH_NONE, null::<c_char>());
            api!(HashGet(self.raw, none, field.inner, &raw mut value, end));
        }
        adopt(value)
    }

    /// Sets a field of a hash; makes the hash if there is none.
    pub fn hash_set(&mut self, field: &Str, value: &Str) {
        self.make_writable();
        // SAFETY: the arguments are pairs of a field and its value, ended by null; the server
        // copies both.
        unsafe {
            let (none, end) = (raw::REDISMODULE_HASH_NONE, null::<c_char>());
            api!(HashSet(self.raw, none, field.inner, value.inner, end));
        }
    }

    /// Sets two fields of a hash; makes the hash if there is none.
    pub fn hash_set_two(&mut self, fields: [(&Str, &Str); 2]) {
        self.make_writable();
        let [(first, its), (second, others)] = fields;
        // SAFETY: the arguments are pairs of a field and its value, ended by null; the server
        // copies all of them.
        unsafe {
            api!(HashSet(
                self.raw,
                raw::REDISMODULE_HASH_NONE,
                first.inner,
                its.inner,
                second.inner,
                others.inner,
                null::<c_char>(),
            ));
        }
    }

    /// Takes a field out of a hash; true if it was there.
    pub fn hash_remove(&mut self, field: &Str) -> bool {
        if self.kind() != Kind::Hash {
            return false;
        }
        self.make_writable();
        // The server's name for "no value": the field is to be deleted.
        let delete = without_provenance_mut::<raw::RedisModuleString>(1);
        // SAFETY: the arguments are pairs of a field and its value, ended by null.
        let removed = unsafe {
            let (none, end) = (raw::REDISMODULE_HASH_NONE, null::<c_char>());
            api!(HashSet(self.raw, none, field.inner, delete, end))
        };
        removed != 0
    }

    /// Some field of a hash that has a name, with its value; the only one if it has one.
    #[must_use]
    pub fn hash_named(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut found = None;
        self.scan_hash(&mut |field, value| {
            if found.is_none() && !field.is_empty() {
                found = Some((field.to_vec(), value.to_vec()));
            }
            found.is_none()
        });
        found
    }

    /// All fields of a hash with their values. Walks it.
    #[must_use]
    pub fn hash_fields(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = Vec::with_capacity(self.len());
        self.scan_hash(&mut |field, value| {
            fields.push((field.to_vec(), value.to_vec()));
            true
        });
        fields
    }

    /// Shows the fields of a hash with their values, until it is told that this was enough.
    fn scan_hash(&self, show: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        type Scan<'s> = (&'s mut dyn FnMut(&[u8], &[u8]) -> bool, bool);
        extern "C" fn take(
            _key: *mut raw::RedisModuleKey,
            field: *mut raw::RedisModuleString,
            value: *mut raw::RedisModuleString,
            scan: *mut c_void,
        ) {
            let read = || {
                // SAFETY: `scan` is the cursor that `scan_hash` passed to ScanKey below.
                let (show, goes_on) = unsafe { &mut *scan.cast::<Scan<'_>>() };
                if *goes_on {
                    *goes_on = show(Str::string_as_slice(field), Str::string_as_slice(value));
                }
            };
            super::guard("a scan", read);
        }
        if self.kind() != Kind::Hash {
            return;
        }
        let mut scan: Scan<'_> = (show, true);
        // SAFETY: the cursor is made and destroyed here; `scan` outlives the walk.
        unsafe {
            let cursor = api!(ScanCursorCreate());
            while scan.1 {
                let shown = (&raw mut scan).cast();
                if api!(ScanKey(self.raw, cursor, Some(take), shown)) == 0 {
                    break;
                }
            }
            api!(ScanCursorDestroy(cursor));
        }
    }

    /// The element of a list at an index.
    #[must_use]
    pub fn list_get(&mut self, index: usize) -> Option<Str> {
        self.stand_near(index);
        let index = c_long::try_from(index).ok()?;
        // SAFETY: ListGet accepts any handle and refuses other types.
        adopt(unsafe { api!(ListGet(self.raw, index)) })
    }

    /// Stands at an index or a few steps before it. Backwards the server steps no cheaper.
    fn stand_near(&mut self, index: usize) {
        let here = match self.cursor {
            ListCursor::Jumped(here) | ListCursor::Stepped(here) => Some(here),
            ListCursor::Nowhere | ListCursor::Deleted => None,
        };
        match here.and_then(|here| index.checked_sub(here)) {
            Some(0) => (),
            Some(1..=NEAR) => self.cursor = ListCursor::Stepped(index),
            _ => {
                self.stand_nowhere();
                self.cursor = ListCursor::Jumped(index);
            }
        }
    }

    fn stand_nowhere(&mut self) {
        if self.cursor != ListCursor::Nowhere {
            self.open_again();
        }
    }

    /// Adds an element at the end of a list; makes the list if there is none.
    pub fn list_push(&mut self, element: &Str) {
        self.make_writable();
        let tail = raw::REDISMODULE_LIST_TAIL;
        self.cursor = ListCursor::Nowhere;
        // SAFETY: ListPush accepts any handle and refuses other types; the server copies.
        unsafe { api!(ListPush(self.raw, tail, element.inner)) };
    }

    /// Deletes the element of a list at an index. Only where the handle has jumped: after steps back,
    /// Redis 7.0 deletes another one, or loses its cursor.
    pub fn list_delete(&mut self, index: usize) {
        self.make_writable();
        if self.cursor != ListCursor::Jumped(index) {
            self.stand_nowhere();
        }
        self.cursor = ListCursor::Deleted;
        let Ok(index) = c_long::try_from(index) else {
            return;
        };
        // SAFETY: ListDelete accepts any handle and refuses other types.
        unsafe { api!(ListDelete(self.raw, index)) };
    }

    /// The score of a sorted set's member.
    #[must_use]
    pub fn score(&self, member: &Str) -> Option<f64> {
        if self.kind() != Kind::SortedSet {
            return None;
        }
        let mut score = 0.0;
        // SAFETY: an open handle of a sorted set, and a cursor for the score.
        let status = unsafe { api!(ZsetScore(self.raw, member.inner, &raw mut score)) };
        (status == OK).then_some(score)
    }

    /// Sets the score of a sorted set's member; makes the set if there is none.
    pub fn set_score(&mut self, member: &Str, score: f64) {
        self.make_writable();
        // SAFETY: ZsetAdd refuses other types; no flags are passed; the server copies.
        unsafe { api!(ZsetAdd(self.raw, score, member.inner, null_mut())) };
    }

    /// Removes a member of a sorted set; true if it was there.
    pub fn remove_member(&mut self, member: &Str) -> bool {
        if self.kind() != Kind::SortedSet {
            return false;
        }
        self.make_writable();
        let mut removed: c_int = 0;
        // SAFETY: an open handle of a sorted set, and a cursor for the answer.
        unsafe { api!(ZsetRem(self.raw, member.inner, &raw mut removed)) };
        removed != 0
    }

    /// All members of a sorted set with their scores, lowest first.
    #[must_use]
    pub fn members(&mut self) -> Vec<(Vec<u8>, f64)> {
        let mut members = Vec::new();
        if self.kind() != Kind::SortedSet {
            return members;
        }
        // SAFETY: an open handle of a sorted set; the range is stopped before it is used again.
        unsafe {
            let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
            api!(ZsetFirstInScoreRange(self.raw, low, high, 0, 0));
            while api!(ZsetRangeEndReached(self.raw)) == 0 {
                let mut score = 0.0;
                let member = api!(ZsetRangeCurrentElement(self.raw, &raw mut score));
                if let Some(member) = adopt(member) {
                    members.push((member.as_slice().to_vec(), score));
                }
                api!(ZsetRangeNext(self.raw));
            }
            api!(ZsetRangeStop(self.raw));
        }
        members
    }

    /// What a function makes of the bytes of a string.
    #[must_use]
    pub fn read<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.kind() != Kind::String {
            return None;
        }
        let mut length = 0;
        // SAFETY: an open handle of a string; the bytes are not used after the key is used again.
        unsafe {
            let mode = raw::REDISMODULE_READ;
            let start = api!(StringDMA(self.raw, &raw mut length, mode));
            if start.is_null() {
                return None;
            }
            Some(read(std::slice::from_raw_parts(start.cast::<u8>(), length)))
        }
    }

    /// Writes these bytes over a string of the same length, whose expiry stays as it is. False,
    /// and nothing is changed, if it has another length.
    pub fn overwrite(&mut self, bytes: &[u8]) -> bool {
        if self.kind() != Kind::String || self.len() != bytes.len() {
            return false;
        }
        self.make_writable();
        let mut length = 0;
        // SAFETY: an open handle of a string; opened for writing, the server gives a cursor that
        // belongs to this key alone. It is null if the key is not open for writing.
        unsafe {
            let mode = raw::REDISMODULE_WRITE;
            let start = api!(StringDMA(self.raw, &raw mut length, mode));
            if start.is_null() || length != bytes.len() {
                return false;
            }
            std::slice::from_raw_parts_mut(start.cast::<u8>(), length).copy_from_slice(bytes);
        }
        true
    }

    /// Makes the key a string with this value and no expiry.
    pub fn set_string(&mut self, value: &Str) {
        self.make_writable();
        // SAFETY: an open handle; StringSet refuses one that is not open for writing.
        unsafe { api!(StringSet(self.raw, value.inner)) };
    }
}

/// Takes over a string that the server made for us.
pub(super) fn adopt(string: *mut raw::RedisModuleString) -> Option<Str> {
    if string.is_null() {
        return None;
    }
    Some(Str::from_redis_module_string(null_mut(), string))
}
