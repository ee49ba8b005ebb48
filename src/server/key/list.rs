//! Lists: elements by their index.

use std::ffi::c_long;

use super::super::api::{api, raw};
use super::super::strings::Str;
use super::{Key, adopt};

/// Where a handle stands in a list: nowhere at first. After a deletion it stands at no index that there is.
pub(super) type ListCursor = Option<usize>;

const NO_INDEX: ListCursor = Some(usize::MAX);

impl Key<'_> {
    /// The element of a list at an index.
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
        let tail = raw::REDISMODULE_LIST_TAIL;
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
