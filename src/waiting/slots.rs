//! In a cluster: locks whose keys may be at another node. Their slot is being moved, has left, or has not arrived yet,
//! or the cluster is down for this node.
//!
//! A lock whose keys are not all here is frozen: its holder can release and renew it where its key is, and nothing else
//! happens, because this node may not have the whole queue. Waiters stay blocked, as in BLPOP, unless the cluster is
//! down: then they are sent away. A frozen lock is looked at ten times a second, until one of these is true:
//!
//! - all keys are here: the lock is no longer frozen. If it came from another node, that node has sent the
//!   waiters here, and they get the time of a turn to arrive;
//! - none of them is: the lock has left. What is known of it is forgotten
//!   ([`forget_if_gone`](super::foreign::forget_if_gone)); blocked waiters get TRYAGAIN, ask again, and the server says
//!   where: they find their places there.
//!
//! The node that receives the slot leaves a lock alone while it has only the lock's keys and not yet the slot: the slot
//! is being migrated key by key, or as a whole. It looks at such a lock as often.
//!
//! Moving a key raises a key event, so it is noticed at once. Slots can also leave without an event: that is noticed
//! when a lock is next looked at, at the latest with all others (`ROUND` in [`table`](super::table)).
//!
//! Here is kept which slots are stable, that is, this node's and not being moved. The server lets a command on a lock
//! in a stable slot through only if all keys of the lock are here.
//!
//! Slots come and begin to move by CLUSTER SETSLOT. The command filter sees it, before the server has found out whether
//! the caller may send it, and perhaps long before it runs. So a slot that is named by it is only doubted for a while:
//! the server is asked at each step. Data only: nothing here reads a key or a clock.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::lock::{Millis, Tick};

/// Milliseconds after which a command that the filter has seen has run, or never will: it runs later in a transaction,
/// after a pause, and where Valkey waits for replicas. For so long a slot is doubted.
pub const DOUBT: Millis = 60_000;

/// What is known of slots.
#[derive(Default)]
pub struct Slots {
    /// The server has shown that the cluster is down for this node.
    pub is_down: bool,
    /// This node's, and not being moved.
    stable: HashSet<u16, RandomState>,
    /// Until when.
    doubted: HashMap<u16, Tick, RandomState>,
    /// May have come since the last step on a lock in them.
    come: HashSet<u16, RandomState>,
    /// How often the command has run by which slots come, as the server shows it.
    runs: String,
}

impl Slots {
    /// A command that moves this slot may run. If the slot leaves, tokens do not go ahead of the clock: the key that
    /// keeps one would be a new key of a slot whose keys are already being moved.
    pub fn named(&mut self, slot: u16, may_come: bool, now: Tick) {
        self.stable.remove(&slot);
        self.doubted.insert(slot, now.after(DOUBT));
        if may_come {
            self.come.insert(slot);
        }
    }

    pub fn is_stable(&self, slot: u16) -> bool {
        self.stable.contains(&slot)
    }

    /// The server has shown that a slot is stable now.
    pub fn found(&mut self, slot: u16, now: Tick) {
        let is_over = |until: &Tick| *until <= now;
        if self.doubted.get(&slot).is_none_or(is_over) {
            self.doubted.remove(&slot);
            self.stable.insert(slot);
        }
    }

    /// Whether a slot may have come since the last call about it.
    pub fn may_have_come(&mut self, slot: u16) -> bool {
        self.come.remove(&slot)
    }

    /// Whether the command by which slots come has run since the last call.
    pub fn have_run(&mut self, runs: &str) -> bool {
        let before = std::mem::replace(&mut self.runs, runs.to_owned());
        before != *runs && !runs.starts_with("calls=0,")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_was_named_is_doubted_for_a_while() {
        let mut slots = Slots::default();
        let at = |time| Tick::default().after(time);
        slots.found(7, at(0));
        assert!(slots.is_stable(7) && !slots.is_stable(8));
        slots.named(7, false, at(1));
        slots.found(7, at(DOUBT));
        assert!(!slots.is_stable(7));
        slots.found(7, at(DOUBT + 1));
        assert!(slots.is_stable(7));
    }

    #[test]
    fn a_slot_that_was_named_may_have_come_once() {
        let mut slots = Slots::default();
        slots.named(7, true, Tick::default());
        slots.named(8, false, Tick::default());
        assert_eq!(
            [8, 7, 7].map(|slot| slots.may_have_come(slot)),
            [false, true, false]
        );
    }
}
