//! Strings: their bytes.

use super::super::api::{api, raw};
use super::super::strings::Str;
use super::{Key, Kind};

impl Key<'_> {
    /// Calls `read` with the bytes of a string, and returns its result.
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

    /// Makes the key a string with this value and no expiry.
    pub fn set_string(&mut self, value: &Str) {
        self.make_writable();
        // SAFETY: an open handle; StringSet refuses one that is not open for writing.
        unsafe { api!(StringSet(self.raw, value.inner)) };
    }
}
