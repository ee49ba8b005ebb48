//! The values at keys, by their types: strings, hashes, lists, sorted sets.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use super::super::api::{OK, api, raw};
use super::super::guard::guard;
use super::super::memory::{Str, string};
use super::{Key, Kind, adopt};

type RawStr = *mut raw::RedisModuleString;

/// A field of a hash, and its value.
type Field = (Vec<u8>, Vec<u8>);

/// Of a hash's fields.
const NO_FLAGS: c_int = raw::REDISMODULE_HASH_NONE.cast_signed();

/// Where a handle stands in a list: nowhere at first. After a deletion it stands at no index that there is.
pub(super) type ListCursor = Option<usize>;

const NO_INDEX: ListCursor = Some(usize::MAX);

/// Strings: their bytes.
impl Key<'_> {
    /// Calls `read` with the bytes of a string, and returns its result.
    pub fn read<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.kind() != Kind::String {
            return None;
        }
        let mut length = 0;
        // SAFETY: an open handle of a string; the bytes are not used after the key is used again.
        unsafe {
            let mode = raw::REDISMODULE_READ.cast_signed();
            let start = api!(StringDMA(self.raw, &raw mut length, mode));
            if start.is_null() {
                return None;
            }
            Some(read(std::slice::from_raw_parts(start.cast::<u8>(), length)))
        }
    }

    /// Makes the key a string with this value and no expiry.
    pub fn set_string(&mut self, value: &Str) {
        self.make_writable();
        // SAFETY: an open handle; StringSet refuses one that is not open for writing.
        unsafe { api!(StringSet(self.raw, value.inner)) };
    }
}

/// Hashes: fields and their values.
impl Key<'_> {
    pub fn hash_get(&self, field: &Str) -> Option<Str> {
        let [value, _] = self.values(field.inner, null_mut());
        value
    }

    pub fn hash_get_two(&self, [first, second]: [&Str; 2]) -> [Option<Str>; 2] {
        self.values(first.inner, second.inner)
    }

    /// The values of one field, or of two: the second may be null.
    fn values(&self, first: RawStr, second: RawStr) -> [Option<Str>; 2] {
        let (mut one, mut other): (RawStr, RawStr) = (null_mut(), null_mut());
        if !self.raw.is_null() {
            let (mode, end) = (NO_FLAGS, null::<c_char>());
            let (its, others) = (&raw mut one, &raw mut other);
            // SAFETY: the arguments are pairs of a field and a pointer for its value, ended by null.
            unsafe { api!(HashGet(self.raw, mode, first, its, second, others, end)) };
        }
        [one, other].map(adopt)
    }

    /// Sets a field of a hash; makes the hash if there is none.
    pub fn hash_set(&mut self, field: &Str, value: &Str) {
        self.set(field.inner, value.inner, null_mut(), null_mut());
    }

    /// Sets two fields of a hash; makes the hash if there is none.
    pub fn hash_set_two(&mut self, [(first, its), (second, others)]: [(&Str, &Str); 2]) {
        self.set(first.inner, its.inner, second.inner, others.inner);
    }

    /// Sets one field, or two: the second may be null. The number of those that were there.
    fn set(&mut self, first: RawStr, its: RawStr, second: RawStr, others: RawStr) -> c_int {
        self.make_writable();
        let (mode, end) = (NO_FLAGS, null::<c_char>());
        // SAFETY: the arguments are pairs of a field and its value, ended by null; the server copies all of them.
        unsafe { api!(HashSet(self.raw, mode, first, its, second, others, end)) }
    }

    /// Makes the server keep a hash as a hash table, so that it finds a field without a walk. It does so for good once
    /// a value is longer than `hash-max-listpack-value`: this field's is, for a moment.
    pub fn widen_hash(&mut self, field: &Str) {
        /// Longer than that option's default.
        const LONG: [u8; 65] = [b' '; 65];
        if let Some(value) = self.hash_get(field) {
            self.hash_set(field, &string(&LONG));
            self.hash_set(field, &value);
        }
    }

    /// Takes a field out of a hash; true if it was there.
    pub fn hash_remove(&mut self, field: &Str) -> bool {
        if self.kind() != Kind::Hash {
            return false;
        }
        // `REDISMODULE_HASH_DELETE`: in place of a value, it deletes the field.
        let delete = without_provenance_mut(1);
        self.set(field.inner, delete, null_mut(), null_mut()) != 0
    }

    /// A field whose name is not empty, with its value. If there are several, any of them.
    pub fn hash_named(&self) -> Option<Field> {
        // One of two has a name.
        let mut fields = self.some_hash_fields(2).into_iter();
        fields.find(|(field, _)| !field.is_empty())
    }

    /// The fields of a hash with their values, at most so many. Walks them.
    pub fn some_hash_fields(&self, most: usize) -> Vec<Field> {
        type Found = (Vec<Field>, usize);
        extern "C" fn take(
            _key: *mut raw::RedisModuleKey,
            field: RawStr,
            value: RawStr,
            found: *mut c_void,
        ) {
            guard("a scan", || {
                // SAFETY: the pointer that was passed to ScanKey below.
                let (fields, most) = unsafe { &mut *found.cast::<Found>() };
                if fields.len() < *most {
                    let (field, value) = (Str::string_as_slice(field), Str::string_as_slice(value));
                    fields.push((field.to_vec(), value.to_vec()));
                }
            });
        }
        let mut found: Found = (Vec::new(), most);
        if self.kind() != Kind::Hash {
            return found.0;
        }
        found.0.reserve(self.len().min(most));
        // SAFETY: the cursor is made and destroyed here; `found` outlives the walk.
        unsafe {
            let cursor = api!(ScanCursorCreate());
            let place = (&raw mut found).cast();
            while found.0.len() < most && api!(ScanKey(self.raw, cursor, Some(take), place)) != 0 {}
            api!(ScanCursorDestroy(cursor));
        }
        found.0
    }
}

/// Lists: elements by their index.
impl Key<'_> {
    pub fn list_get(&mut self, index: usize) -> Option<Str> {
        // A step ahead is cheap. A step back costs the server as much as a jump, for which the key is opened again.
        let is_near = self
            .cursor
            .is_some_and(|here| here == index || here.checked_add(1) == Some(index));
        if !is_near {
            self.stand_nowhere();
        }
        self.has_stepped |= self.cursor.is_some_and(|here| here != index);
        self.cursor = Some(index);
        let index = c_long::try_from(index).ok()?;
        // SAFETY: ListGet accepts any handle and refuses other types.
        adopt(unsafe { api!(ListGet(self.raw, index)) })
    }

    pub(super) fn stand_nowhere(&mut self) {
        if self.cursor.is_some() {
            self.open_again();
        }
    }

    /// Adds an element at the end of a list; makes the list if there is none.
    pub fn list_push(&mut self, element: &Str) {
        self.make_writable();
        let tail = raw::Where::ListTail as c_int;
        self.cursor = None;
        // SAFETY: ListPush accepts any handle and refuses other types; the server copies.
        unsafe { api!(ListPush(self.raw, tail, element.inner)) };
    }

    /// Deletes the element of a list at an index. Only where the handle has jumped: after steps, Redis 7.0 deletes
    /// another one, or loses its cursor.
    pub fn list_delete(&mut self, index: usize) {
        self.make_writable();
        if self.has_stepped || self.cursor != Some(index) {
            self.stand_nowhere();
        }
        self.cursor = NO_INDEX;
        let Ok(index) = c_long::try_from(index) else {
            return;
        };
        // SAFETY: ListDelete accepts any handle and refuses other types.
        unsafe { api!(ListDelete(self.raw, index)) };
    }
}

/// Sorted sets: members and their scores.
impl Key<'_> {
    pub fn score(&self, member: &Str) -> Option<f64> {
        if self.kind() != Kind::ZSet {
            return None;
        }
        let mut score = 0.0;
        // SAFETY: an open handle of a sorted set, and a pointer for the score.
        let status = unsafe { api!(ZsetScore(self.raw, member.inner, &raw mut score)) };
        (status == OK).then_some(score)
    }

    /// Sets the score of a sorted set's member; makes the set if there is none.
    pub fn set_score(&mut self, member: &Str, score: f64) {
        self.make_writable();
        // SAFETY: ZsetAdd refuses other types; no flags are passed; the server copies.
        unsafe { api!(ZsetAdd(self.raw, score, member.inner, null_mut())) };
    }

    /// Makes the server keep a sorted set as a skip list, so that it adds a member without a walk. It does so for good
    /// once a member is longer than `zset-max-listpack-value`: one is in the set for a moment.
    pub fn widen_sorted_set(&mut self) {
        /// Longer than that option's default, and than any owner.
        const LONG: [u8; 300] = [b' '; 300];
        let member = string(&LONG);
        if self.kind() == Kind::ZSet {
            self.set_score(&member, 0.0);
            self.remove_member(&member);
        }
    }

    /// Removes a member of a sorted set; true if it was there.
    pub fn remove_member(&mut self, member: &Str) -> bool {
        if self.kind() != Kind::ZSet {
            return false;
        }
        self.make_writable();
        let mut removed: c_int = 0;
        // SAFETY: an open handle of a sorted set, and a pointer for the answer.
        unsafe { api!(ZsetRem(self.raw, member.inner, &raw mut removed)) };
        removed != 0
    }

    /// All members of a sorted set with their scores, lowest first.
    pub fn members(&mut self) -> Vec<(Vec<u8>, f64)> {
        let mut members = Vec::new();
        if self.kind() != Kind::ZSet {
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
}
