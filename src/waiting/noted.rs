//! The locks that have work, in the order in which it is done.

use std::collections::VecDeque;

use crate::keyspace::QueueView;
use crate::lock::is_too_roomy;

use super::record::{LockId, WORK_BATCH, Work};
use super::table::Table;

impl Table {
    /// Notes work about a lock. True if no lock had work.
    pub fn note(&mut self, id: &LockId, note: impl FnOnce(&mut Work)) -> bool {
        let record = self.make(id);
        note(&mut record.work);
        if !std::mem::replace(&mut record.is_noted, true) {
            let id = record.id.clone();
            self.noted.push_back(id);
            return self.noted.len() == 1;
        }
        false
    }

    /// The work on a lock that could not be done before, which is not kept any more.
    pub fn kept_work(&mut self, id: &LockId) -> Work {
        let record = self.record(id.db, &id.name);
        let kept = record.filter(|record| !record.is_noted);
        kept.map(|record| std::mem::take(&mut record.work))
            .unwrap_or_default()
    }

    /// Number of locks that have work.
    pub fn noted(&self) -> usize {
        self.noted.len()
    }

    /// The first lock that has work, and the work, which is not noted any more: of many waiters that have gone, some,
    /// and of many sessions that have closed. The rest is noted behind that of other locks.
    pub fn take_work(&mut self) -> Option<(LockId, Work)> {
        let id = self.noted.pop_front()?;
        if is_too_roomy(self.noted.capacity(), self.noted.len()) {
            self.noted.shrink_to(self.noted.len() * 2);
        }
        let record = self.record(id.db, &id.name)?;
        record.is_noted = false;
        let noted = &mut record.work;
        let work = Work {
            touch: noted.touch.take(),
            gone: first(&mut noted.gone),
            lost: std::mem::take(&mut noted.lost),
            closed: first(&mut noted.closed),
        };
        if record.work.is_none() {
            self.forget_if_idle(&id);
        } else {
            self.note(&id, |_| ());
        }
        Some((id, work))
    }

    /// Work could not be done, because a key has another type, or is at another node. It is kept until the lock is
    /// touched or due.
    pub fn keep_work(&mut self, id: &LockId, mut work: Work) {
        let kept = &mut self.make(id).work;
        work.gone.append(&mut kept.gone);
        work.lost.append(&mut kept.lost);
        work.closed.append(&mut kept.closed);
        work.touch = work.touch.max(kept.touch);
        *kept = work;
    }

    /// How a lock's queue was touched from outside the module, for the step that begins now. The lock is still
    /// looked at when the iteration ends.
    pub fn take_touch(&mut self, db: i32, lock: &[u8]) -> QueueView {
        if self.noted.is_empty() {
            return QueueView::AsLeft;
        }
        let record = self.record(db, lock);
        let touch = record.and_then(|record| record.work.touch.as_mut());
        touch.map_or(QueueView::AsLeft, |touch| {
            std::mem::replace(touch, QueueView::AsLeft)
        })
    }
}

/// Takes as many out as one step deals with.
fn first<T>(all: &mut VecDeque<T>) -> VecDeque<T> {
    if all.len() > WORK_BATCH {
        all.drain(..WORK_BATCH).collect()
    } else {
        std::mem::take(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Owner;

    #[test]
    fn many_waiters_that_have_gone_leave_in_pieces() {
        let mut table = Table::default();
        let gone = vec![Owner::from(&b"a"[..]); 2 * WORK_BATCH + 1];
        table.note(&LockId::new(0, b"k"), |work| work.gone.extend(gone));
        let pieces = [(); 4].map(|()| table.take_work().map(|(_, work)| work.gone.len()));
        assert_eq!(pieces, [Some(WORK_BATCH), Some(WORK_BATCH), Some(1), None]);
    }
}
