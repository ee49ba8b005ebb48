//! Counting what happens to locks, for INFO. Knows events and instants, and no lock's state.
//!
//! How long a lock is held is measured from the moment this server granted it, so that instant is
//! remembered for every held lock: 16 bytes each, under a 64-bit hash of its name. If two names have the same
//! hash, one duration is wrong.
//!
//! - [`durations`]: how long things took.

mod durations;

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::lock::{Event, Now, give_back};
use crate::server::clock;
use crate::server::info::Section;

use durations::Durations;

/// What has happened since the module was loaded.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    immediate: u64,
    handed_off: u64,
    reentrant: u64,
    releases: u64,
    timeouts: u64,
    cancels: u64,
    disconnects: u64,
    lease_ends: u64,
    reaped: u64,
    take_overs: u64,
}

/// When each lock was acquired, by a hash of its database and name.
type Held = HashMap<u64, u64, RandomState>;

#[derive(Default)]
pub struct Stats {
    counters: Counters,
    waits: Durations,
    holds: Durations,
    held: Held,
    hasher: RandomState,
}

impl Stats {
    /// Counts one thing that happened to a lock.
    pub fn count(&mut self, event: &Event, db: i32, lock: &[u8], now: Now) {
        let counters = &mut self.counters;
        match event {
            Event::Acquired {
                waited: None,
                shared,
            } => {
                counters.immediate += 1;
                self.held(db, lock, *shared, now);
            }
            Event::Acquired {
                waited: Some(waited),
                shared,
            }
            | Event::Granted { waited, shared, .. } => {
                counters.handed_off += 1;
                self.waits.record(*waited);
                self.held(db, lock, *shared, now);
            }
            Event::HeldAgain { .. } => counters.reentrant += 1,
            Event::Released { since } => {
                counters.releases += 1;
                self.released(db, lock, *since, now.steady);
            }
            Event::LeaseEnded { since } => {
                counters.lease_ends += 1;
                self.released(db, lock, *since, now.steady);
            }
            Event::Cancelled { .. } => counters.cancels += 1,
            Event::Reaped { .. } => counters.reaped += 1,
            Event::TakenOver { .. } => counters.take_overs += 1,
            Event::Enqueued
            | Event::Left { .. }
            | Event::WakeUp { .. }
            | Event::Bound { .. }
            | Event::Unbound { .. } => (),
        }
    }

    pub fn timed_out(&mut self) {
        self.counters.timeouts += 1;
    }

    pub fn disconnected(&mut self) {
        self.counters.disconnects += 1;
    }

    fn hash(&self, db: i32, lock: &[u8]) -> u64 {
        self.hasher.hash_one((db, lock))
    }

    /// Remembers when an exclusive holder got the lock. For a shared holder that is kept with the lock.
    fn held(&mut self, db: i32, lock: &[u8], shared: bool, now: Now) {
        if !shared {
            self.held.insert(self.hash(db, lock), now.steady);
        }
    }

    /// A holder has lost the lock, which a shared holder got at `since`. False if an exclusive one did not get it here.
    fn released(&mut self, db: i32, lock: &[u8], since: Option<u64>, steady: u64) -> bool {
        let since = since.or_else(|| self.held.remove(&self.hash(db, lock)));
        give_back(&mut self.held);
        if let Some(since) = since {
            self.holds.record(steady.saturating_sub(since));
        }
        since.is_some()
    }

    /// Microseconds since this server granted the lock to its holder. `None` if it did not, or
    /// if the lock was changed from outside the module since.
    pub fn held_for(&self, db: i32, lock: &[u8], now: Now) -> Option<u64> {
        let since = self.held.get(&self.hash(db, lock))?;
        Some(now.steady.saturating_sub(*since))
    }

    /// A key has expired: the lease has ended, if it is that of a lock acquired here.
    pub fn expired(&mut self, db: i32, key: &[u8]) {
        if self.held.is_empty() {
            return;
        }
        if self.released(db, key, None, clock::steady_micros()) {
            self.counters.lease_ends += 1;
        }
    }

    /// A key was changed from outside the module. If it was a lock acquired here, how long it was held is
    /// not known any more.
    pub fn taken_away(&mut self, db: i32, key: &[u8]) {
        if !self.held.is_empty() {
            self.held.remove(&self.hash(db, key));
        }
    }

    /// Whole databases were changed from outside the module.
    pub fn forget_holders(&mut self) {
        self.held.clear();
    }

    /// Writes the section of INFO: counters since the module was loaded, and how many there are now: clients blocked in
    /// ACQUIRE, locks bound to connections, and locks with waiters, a session or shared holders.
    pub fn write(&self, section: &mut Section, [blocked, sessions, tracked]: [usize; 3]) {
        let counters = &self.counters;
        for (name, count) in [
            ("acquisitions_immediate", counters.immediate),
            ("acquisitions_handed_off", counters.handed_off),
            ("acquisitions_reentrant", counters.reentrant),
            ("releases", counters.releases),
            ("timeouts", counters.timeouts),
            ("cancels", counters.cancels),
            ("disconnects", counters.disconnects),
            ("lease_ends", counters.lease_ends),
            ("reaped_waiters", counters.reaped),
            ("take_overs", counters.take_overs),
            ("blocked_clients", number(blocked)),
            ("session_locks", number(sessions)),
            ("locks_with_waiters_or_session", number(tracked)),
        ] {
            section.number(name, count);
        }
        for (name, durations) in [("wait_time", &self.waits), ("hold_time", &self.holds)] {
            durations.write(section, name);
        }
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
