//! Hashes: fields and their values.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use super::super::Str;
use super::super::api::{api, raw};
use super::super::string;
use super::{Key, Kind, adopt};

impl Key<'_> {
    /// The value of a hash's field.
    #[must_use]
    pub fn hash_get(&self, field: &Str) -> Option<Str> {
        if self.raw.is_null() {
            return None;
        }
        let mut value: *mut raw::RedisModuleString = null_mut();
        // SAFETY: the arguments are pairs of a field and a pointer for its value, ended by null.
        unsafe {
            let (none, end) = (raw::REDISMODULE_HASH_NONE, null::<c_char>());
            api!(HashGet(self.raw, none, field.inner, &raw mut value, end));
        }
        adopt(value)
    }

    /// The values of two fields of a hash.
    #[must_use]
    pub fn hash_get_two(&self, [first, second]: [&Str; 2]) -> [Option<Str>; 2] {
        if self.raw.is_null() {
            return [None, None];
        }
        let [mut one, mut two]: [*mut raw::RedisModuleString; 2] = [null_mut(); 2];
        // SAFETY: the arguments are pairs of a field and a pointer for its value, ended by null.
        unsafe {
            api!(HashGet(
                self.raw,
                raw::REDISMODULE_HASH_NONE,
                first.inner,
                &raw mut one,
                second.inner,
                &raw mut two,
                null::<c_char>(),
            ));
        }
        [one, two].map(adopt)
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
        self.make_writable();
        // `REDISMODULE_HASH_DELETE`: in place of a value, it deletes the field.
        let delete = without_provenance_mut::<raw::RedisModuleString>(1);
        // SAFETY: the arguments are pairs of a field and its value, ended by null.
        let removed = unsafe {
            let (none, end) = (raw::REDISMODULE_HASH_NONE, null::<c_char>());
            api!(HashSet(self.raw, none, field.inner, delete, end))
        };
        removed != 0
    }

    /// A field whose name is not empty, with its value. If there are several, any of them.
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

    /// All fields of a hash with their values. Walks the hash.
    #[must_use]
    pub fn hash_fields(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.some_hash_fields(usize::MAX)
    }

    /// As [`Key::hash_fields`], but at most so many of them.
    #[must_use]
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
            super::super::guard("a scan", read);
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
