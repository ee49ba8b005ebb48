//! Detects changes from outside the module since the last step, and has them repaired: when the keys were opened, and
//! where a step relies on the list.

use crate::lock::State;
use crate::server::Kind;

use super::open_lock::OpenLock;
use super::repair;
use super::tracked::{QueueView, Unusable, require_kinds};
use super::write;

impl OpenLock<'_> {
    /// Makes the keys ready for the rules. If the queue was changed from outside the module, it is repaired. Where the
    /// lock, queue or deadline key holds something else, nothing is written.
    pub fn prepare(&mut self, queue: QueueView) -> Result<(), Unusable> {
        require_kinds(&[
            (&self.lock, Kind::Hash),
            (&self.queue, Kind::List),
            (&self.scores, Kind::ZSet),
        ])?;
        let touched = queue.is_touched();
        let may_be_shared = touched || self.tracked.shared.is_some();
        if may_be_shared && !self.frozen {
            let opened = self.open_shared();
            // A lock that is free has no holders, whatever is in the place of their key.
            if !self.lock.is_empty() {
                opened?;
            }
        }
        self.delete_if_only_token();
        self.mend_shared_if_touched();
        if touched {
            self.persist_queue();
        }
        if !self.frozen && (touched || !self.queue_is_as_tracked()) {
            repair::repair(self, queue == QueueView::Loaded);
        }
        Ok(())
    }

    /// Whether the queue and the scores are as long as this server left them. Key events report most changes from
    /// outside the module; this detects changes without an event.
    fn queue_is_as_tracked(&self) -> bool {
        let length = self.tracked.line.len();
        self.queue.len() == length && self.scores.len() == length
    }

    /// Deletes the hash if another client took the owner out of it and left only the token. A hash without an expiry
    /// that is not tracked may be another program's.
    fn delete_if_only_token(&mut self) {
        if self.lock.len() == 1
            && self.token().is_some()
            && (self.lease_end().is_some() || !self.tracked.is_empty())
        {
            self.delete_lock();
        }
    }

    /// Removes an expiry that another client has set on queue and scores (Redisson's `expire()` does), which
    /// would delete the waiters. Both keys last as long as there are waiters.
    fn persist_queue(&mut self) {
        for key in [&mut self.queue, &mut self.scores] {
            if key.expires_at().is_some() {
                write::persist(key);
            }
        }
    }

    /// Takes an owner out of what is tracked of the queue. Returns its index in the list, where it still is. If another
    /// client has changed the list, that is detected here, and repaired.
    pub(super) fn forget_place(&mut self, owner: &[u8]) -> Option<usize> {
        let index = self.line()?.position(owner)?;
        let found = self.queue.list_get(index);
        if found.is_none_or(|found| found.as_slice() != owner) {
            repair::repair(self, false);
        }
        self.tracked.line.remove(owner)
    }
}
