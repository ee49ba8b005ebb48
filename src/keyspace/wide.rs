//! Keys with more than a few elements, in a form in which the server finds one without a walk.
//!
//! The server keeps a small hash or sorted set in a compact form, and walks all of it to find or add an element:
//! up to 512 fields, or 128 members. At a hundred waiters a third of a hand-off's instructions were such walks.
//! So the module has such keys converted earlier. Only the server's memory differs: neither replicas nor files do.

use super::open_lock::OpenLock;

/// Up to this size the compact form is searched about as fast.
const COMPACT: usize = 8;

impl OpenLock<'_> {
    /// Converts the keys of the shared holders, if they are more than a few. `owner` is one of them.
    pub(super) fn widen_shared(&mut self, owner: &[u8]) {
        let shared = self.tracked.shared.as_ref();
        let holders = shared.map_or(0, |shared| shared.count());
        if holders <= COMPACT || self.tracked.has_wide_holders {
            return;
        }
        self.tracked.has_wide_holders = true;
        let owner = self.known.named.get(owner);
        self.lock.widen_hash(owner);
        if let Some(key) = &mut self.shared {
            key.widen_hash(owner);
        }
    }

    /// Converts the scores, if there are more than a few. A waiter has been added.
    pub(super) fn widen_scores(&mut self) {
        let waiting = self.tracked.line.len();
        // With its first waiter the key is new.
        self.tracked.has_wide_scores &= waiting > 1;
        if waiting > COMPACT && !self.tracked.has_wide_scores {
            self.tracked.has_wide_scores = true;
            self.scores.widen_sorted_set();
        }
    }
}
