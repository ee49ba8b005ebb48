//! Hashes: fields and their values.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use super::super::api::{api, raw};
use super::super::guard::guard;
use super::super::strings::{Str, string};
use super::{Key, Kind, adopt};

type RawStr = *mut raw::RedisModuleString;

impl Key<'_> {
    /// The value of a hash's field.
    pub fn hash_get(&self, field: &Str) -> Option<Str> {
        let [value, _] = self.values(field.inner, null_mut());
        value
    }

    /// The values of two fields of a hash.
    pub fn hash_get_two(&self, [first, second]: [&Str; 2]) -> [Option<Str>; 2] {
        self.values(first.inner, second.inner)
    }

    /// The values of one field, or of two: the second may be null.
    fn values(&self, first: RawStr, second: RawStr) -> [Option<Str>; 2] {
        let (mut one, mut other): (RawStr, RawStr) = (null_mut(), null_mut());
        if !self.raw.is_null() {
            let (mode, end) = (raw::REDISMODULE_HASH_NONE, null::<c_char>());
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
        let (mode, end) = (raw::REDISMODULE_HASH_NONE, null::<c_char>());
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
    pub fn hash_named(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        // One of two has a name.
        let mut fields = self.some_hash_fields(2).into_iter();
        fields.find(|(field, _)| !field.is_empty())
    }

    /// The fields of a hash with their values, at most so many. Walks them.
    pub fn some_hash_fields(&self, most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = Vec::with_capacity(self.len().min(most));
        self.scan_hash(&mut |field, value| {
            fields.push((field.to_vec(), value.to_vec()));
            fields.len() < most
        });
        fields
    }

    /// Calls `show` with each field of a hash and its value, until `show` returns false.
    fn scan_hash(&self, show: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        type Scan<'s> = (&'s mut dyn FnMut(&[u8], &[u8]) -> bool, bool);
        extern "C" fn take(
            _key: *mut raw::RedisModuleKey,
            field: *mut raw::RedisModuleString,
            value: *mut raw::RedisModuleString,
            scan: *mut c_void,
        ) {
            let read = || {
                // SAFETY: `scan` is the pointer that `scan_hash` passed to ScanKey below.
                let (show, goes_on) = unsafe { &mut *scan.cast::<Scan<'_>>() };
                if *goes_on {
                    *goes_on = show(Str::string_as_slice(field), Str::string_as_slice(value));
                }
            };
            guard("a scan", read);
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
}
