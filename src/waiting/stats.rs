//! Counting what happens, for INFO. Knows events and instants, and no lock's state.
//!
//! How long a lock is held is measured from the moment this server granted it, so that instant is
//! remembered for every held lock: 16 bytes each, under a 64-bit hash of its name. If two names have the same
//! hash, one duration is wrong.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use foldhash::fast::RandomState;
use hdrhistogram::Histogram;

use crate::lock::{Event, Now};
use crate::server::clock;
use crate::server::info::Section;

use super::record::give_back;

/// Durations of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Percentiles {
    /// Half were no longer than this many microseconds.
    p50: u64,
    /// All but one in a hundred were no longer.
    p99: u64,
    /// The longest.
    max: u64,
}

/// What has happened since the module was loaded.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// Acquisitions without waiting.
    immediate: u64,
    /// Acquisitions by a waiter, blocked or polling.
    handed_off: u64,
    /// Acquisitions by the holder.
    reentrant: u64,
    /// Locks freed by RELEASE, BREAK, or a session's end.
    releases: u64,
    /// Blocked waiters whose time was up.
    timeouts: u64,
    /// Waiters taken out by CANCEL.
    cancels: u64,
    /// Blocked waiters whose connection closed.
    disconnects: u64,
    /// Locks acquired here whose lease ended.
    lease_ends: u64,
    /// Polling waiters that were dropped as dead.
    reaped: u64,
    /// Blocked waiters whose place a second connection took.
    take_overs: u64,
}

/// Hashes what is a hash already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// When each lock was acquired, by a hash of its database and name.
type Held = HashMap<u64, u64, BuildHasherDefault<Identity>>;

/// Upper bounds of the histogram in INFO, in microseconds: from less than a hand-off takes to an hour.
const BOUNDS: [u64; 15] = [
    100,
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    600_000_000,
    3_600_000_000,
];

/// Durations in microseconds, to two digits.
struct Durations {
    histogram: Option<Histogram<u64>>,
    /// Of all of them, exactly.
    sum: u64,
}

impl Default for Durations {
    fn default() -> Self {
        const LONGEST_MEASURED: u64 = 1 << 52;
        let histogram = Histogram::new_with_bounds(1, LONGEST_MEASURED, 2).ok();
        Self { histogram, sum: 0 }
    }
}

impl Durations {
    fn record(&mut self, micros: u64) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(micros);
            self.sum = self.sum.wrapping_add(micros);
        }
    }

    /// How many were no longer than each of [`BOUNDS`], and how many there are.
    fn cumulative(&self) -> ([u64; BOUNDS.len()], u64) {
        let mut counts = [0; BOUNDS.len()];
        let Some(histogram) = &self.histogram else {
            return (counts, 0);
        };
        for recorded in histogram.iter_recorded() {
            // The lowest of the durations that the histogram counts as this one.
            let least = histogram.lowest_equivalent(recorded.value_iterated_to());
            for (count, _) in counts
                .iter_mut()
                .zip(BOUNDS)
                .filter(|(_, bound)| least <= *bound)
            {
                *count += recorded.count_at_value();
            }
        }
        (counts, histogram.len())
    }

    /// Writes a cumulative histogram as Prometheus has it, which can be summed over servers and compared over time.
    fn write(&self, section: &mut Section, name: &str) {
        let (counts, all) = self.cumulative();
        for (bound, count) in BOUNDS.iter().zip(counts) {
            section.number(&format!("{name}_usec_le_{bound}"), count);
        }
        section.number(&format!("{name}_usec_sum"), self.sum);
        section.number(&format!("{name}_usec_count"), all);
    }

    fn percentiles(&self) -> Percentiles {
        let Some(histogram) = self
            .histogram
            .as_ref()
            .filter(|histogram| !histogram.is_empty())
        else {
            return Percentiles::default();
        };
        Percentiles {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
        }
    }
}

/// What is counted and measured.
#[derive(Default)]
pub struct Stats {
    counters: Counters,
    waits: Durations,
    holds: Durations,
    held: Held,
    hasher: RandomState,
}

/// How many there are now.
#[derive(Clone, Copy, Debug)]
pub struct Gauges {
    /// Clients blocked in ACQUIRE.
    pub blocked: usize,
    /// Locks bound to connections.
    pub sessions: usize,
    /// Locks with waiters or a session.
    pub tracked: usize,
}

fn add(count: &mut u64) {
    *count = count.wrapping_add(1);
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
                add(&mut counters.immediate);
                self.held(db, lock, *shared, now);
            }
            Event::Acquired {
                waited: Some(waited),
                shared,
            }
            | Event::Granted { waited, shared, .. } => {
                add(&mut counters.handed_off);
                self.waits.record(*waited);
                self.held(db, lock, *shared, now);
            }
            Event::HeldAgain { .. } => add(&mut counters.reentrant),
            Event::Released { since } => {
                add(&mut counters.releases);
                self.released(db, lock, *since, now);
            }
            Event::LeaseEnded { since } => {
                add(&mut counters.lease_ends);
                self.released(db, lock, *since, now);
            }
            Event::Cancelled { .. } => add(&mut counters.cancels),
            Event::Reaped { .. } => add(&mut counters.reaped),
            Event::TakenOver { .. } => add(&mut counters.take_overs),
            Event::Enqueued
            | Event::Left
            | Event::WakeUp { .. }
            | Event::Bound { .. }
            | Event::Unbound { .. } => (),
        }
    }

    /// A blocked client's time was up.
    pub fn timed_out(&mut self) {
        add(&mut self.counters.timeouts);
    }

    /// A blocked client's connection has closed.
    pub fn disconnected(&mut self) {
        add(&mut self.counters.disconnects);
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

    fn released(&mut self, db: i32, lock: &[u8], since: Option<u64>, now: Now) {
        match since {
            Some(since) => self.holds.record(now.steady.saturating_sub(since)),
            None => {
                self.record_hold(db, lock, now.steady);
            }
        }
    }

    /// Microseconds since this server granted the lock to its holder. `None` if it did not, or
    /// if the lock was changed from outside the module since.
    pub fn held_for(&self, db: i32, lock: &[u8], now: Now) -> Option<u64> {
        let since = self.held.get(&self.hash(db, lock))?;
        Some(now.steady.saturating_sub(*since))
    }

    fn record_hold(&mut self, db: i32, lock: &[u8], steady: u64) -> bool {
        let since = self.held.remove(&self.hash(db, lock));
        give_back(&mut self.held);
        if let Some(since) = since {
            self.holds.record(steady.saturating_sub(since));
        }
        since.is_some()
    }

    /// A key has expired: the lease has ended, if it is that of a lock acquired here.
    pub fn expired(&mut self, db: i32, key: &[u8]) {
        if self.held.is_empty() {
            return;
        }
        if self.record_hold(db, key, clock::steady_micros()) {
            add(&mut self.counters.lease_ends);
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

    /// Writes the section of INFO: counters since the module was loaded, and gauges.
    pub fn write(&self, section: &mut Section, gauges: Gauges) {
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
            ("blocked_clients", number(gauges.blocked)),
            ("session_locks", number(gauges.sessions)),
            ("locks_with_waiters_or_session", number(gauges.tracked)),
        ] {
            section.number(name, count);
        }
        for (name, durations) in [("wait_time", &self.waits), ("hold_time", &self.holds)] {
            let percentiles = durations.percentiles();
            section.number(&format!("{name}_p50_usec"), percentiles.p50);
            section.number(&format!("{name}_p99_usec"), percentiles.p99);
            section.number(&format!("{name}_max_usec"), percentiles.max);
            durations.write(section, name);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
