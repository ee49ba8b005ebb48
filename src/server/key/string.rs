//! Strings: their bytes.

use super::super::Str;
use super::super::api::{api, raw};
use super::{Key, Kind};

impl Key<'_> {
    /// Calls `read` with the bytes of a string, and returns its result.
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
        // SAFETY: an open handle of a string; opened for writing, the server returns bytes that
        // belong to this key alone. The pointer is null if the key is not open for writing.
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
