//! Sorted sets: members and their scores.

use std::ffi::c_int;
use std::ptr::null_mut;

use super::super::api::{OK, api};
use super::super::strings::{Str, string};
use super::{Key, Kind, adopt};

impl Key<'_> {
    /// The score of a sorted set's member.
    pub fn score(&self, member: &Str) -> Option<f64> {
        if self.kind() != Kind::SortedSet {
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
        if self.kind() == Kind::SortedSet {
            self.set_score(&member, 0.0);
            self.remove_member(&member);
        }
    }

    /// Removes a member of a sorted set; true if it was there.
    pub fn remove_member(&mut self, member: &Str) -> bool {
        if self.kind() != Kind::SortedSet {
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
}
