//! Lists: elements by their index.

use std::ffi::c_long;

use super::super::Str;
use super::super::api::{api, raw};
use super::{Key, adopt};

/// Where a handle stands in a list: the server's functions step from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListCursor {
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

impl Key<'_> {
    /// The element of a list at an index.
    #[must_use]
    pub fn list_get(&mut self, index: usize) -> Option<Str> {
        self.stand_near(index);
        let index = c_long::try_from(index).ok()?;
        // SAFETY: ListGet accepts any handle and refuses other types.
        adopt(unsafe { api!(ListGet(self.raw, index)) })
    }

    /// Moves the handle to an index, or leaves it a few steps before it. A step back costs the server as much
    /// as a jump.
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

    pub(super) fn stand_nowhere(&mut self) {
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
}
