//! What other clients do to the keys. The server looks at the lock later in the same iteration.

use super::world::{NAMES, World};
use crate::lock::{Holding, Millis, Owner, Queueing, SharedHolders, Sharing};

impl World {
    /// The lock's key is deleted. Of several holders the server has to tell; the only one is none any more.
    pub(super) fn delete(&mut self) {
        self.state.lose_key();
        self.oracle.holders.retain(|holder| !holder.is_exclusive());
        for holder in &mut self.oracle.holders {
            holder.lost = true;
        }
        self.touch();
    }

    /// One of several holders is taken out of it.
    pub(super) fn delete_holder(&mut self, owner: usize) {
        if self.state.counts.remove(NAMES[owner]).is_none() {
            return;
        }
        if self.state.counts.is_empty() {
            return self.delete();
        }
        if let Some(holder) = self.oracle.holder_mut(owner) {
            holder.lost = true;
        }
        self.state.set_lease_of(NAMES[owner], 0);
        self.touch();
    }

    /// Its expiry is set: the longest lease now ends with it, and none ends later.
    pub(super) fn set_expiry(&mut self, lease: Millis) {
        if !self.state.is_held() {
            return;
        }
        let end = self.now.after(lease);
        self.state.lease_end = Some(end);
        let longest = self.state.shared.as_ref().and_then(SharedHolders::last);
        for holder in self.oracle.holders.iter_mut().filter(|of| !of.lost) {
            let name = Owner::from(NAMES[holder.owner]);
            if holder.is_exclusive() || Some(&name) == longest.as_ref() || holder.lease_end > end {
                holder.lease_end = end;
                self.state.set_lease_of(&name, end);
            }
        }
        self.touch();
    }

    pub(super) fn set_score(&mut self, owner: usize, ahead: i64) {
        let score = self.now.millis().saturating_add_signed(ahead);
        self.state.set_score(NAMES[owner], score);
        self.touch();
    }

    fn touch(&mut self) {
        self.touched = true;
        self.stirred = true;
    }
}
