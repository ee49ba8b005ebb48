//! How long waiters have waited in the last minute.
//!
//! A server counts waits in a histogram, from the moment the module was loaded. What has been added between two looks
//! is the histogram of the time between them, and histograms of several servers add up. A bucket tells no more than its
//! bound, so each figure here is an upper bound.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use serde::Serialize;

use super::reading::Reading;

/// How far back it goes.
const MINUTE: Duration = Duration::from_mins(1);
/// Looks closer together than this are not all kept.
const APART: Duration = Duration::from_secs(1);

/// How many waits were at most as long as each bound, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    counts: Vec<(u64, u64)>,
    all: u64,
}

impl Waits {
    /// Reads the section of INFO. A server of an earlier release has no histogram: then nothing is counted.
    #[must_use]
    pub fn read(info: &str) -> Self {
        let mut waits = Self::default();
        for line in info.lines() {
            let field = line.strip_prefix("fairlock_wait_time_usec_");
            let Some((name, value)) = field.and_then(|field| field.split_once(':')) else {
                continue;
            };
            let Ok(value) = value.trim().parse() else {
                continue;
            };
            if name == "count" {
                waits.all = value;
            } else if let Some(Ok(bound)) = name.strip_prefix("le_").map(str::parse) {
                waits.counts.push((bound, value));
            }
        }
        waits.counts.sort_unstable();
        waits
    }

    /// What has been added since an earlier look. A server that was restarted in between counts from nothing.
    fn since(&self, earlier: &Self) -> Self {
        let Some(all) = self.all.checked_sub(earlier.all) else {
            return self.clone();
        };
        let before: HashMap<u64, u64> = earlier.counts.iter().copied().collect();
        let more = |&(bound, count): &(u64, u64)| {
            let before = before.get(&bound).copied().unwrap_or(0);
            (bound, count.saturating_sub(before))
        };
        let counts = self.counts.iter().map(more).collect();
        Self { counts, all }
    }

    fn add(&mut self, other: &Self) {
        self.all = self.all.saturating_add(other.all);
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
            return;
        }
        for ((_, count), (_, more)) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
    }

    /// A percentile; `None` if there were no waits, or it is beyond all bounds.
    fn at_most(&self, percent: u64) -> Option<u64> {
        let rank = self.all.saturating_mul(percent).div_ceil(100);
        let mut reached = self.counts.iter().filter(|(_, count)| *count >= rank);
        reached.next().filter(|_| rank > 0).map(|(bound, _)| *bound)
    }
}

/// The waits of the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recent {
    /// Seconds that were seen: 60, or fewer at the beginning.
    pub seconds: u64,
    /// Waits that have ended with the lock.
    pub waits: u64,
    /// The median in microseconds; `None` if there were none.
    pub p50_usec: Option<u64>,
    /// The 99th percentile.
    pub p99_usec: Option<u64>,
    /// The longest.
    pub max_usec: Option<u64>,
}

/// The looks of the last minute.
#[derive(Debug, Default)]
pub struct Window {
    looks: VecDeque<(Duration, HashMap<String, Waits>)>,
}

impl Window {
    /// Takes in a look.
    pub fn take(&mut self, reading: &Reading) {
        let last = self.looks.back().map(|(at, _)| *at);
        if last.is_some_and(|last| reading.at.saturating_sub(last) < APART) {
            return;
        }
        let waits = reading.nodes.iter().filter_map(|node| {
            let said = node.said.as_ref().ok()?;
            Some((node.address.clone(), said.waits.clone()))
        });
        self.looks.push_back((reading.at, waits.collect()));
        // One that is a minute old stays: the last minute is what has been added since.
        let is_old = |look: Option<&(Duration, _)>| {
            look.is_some_and(|(at, _)| reading.at.saturating_sub(*at) >= MINUTE)
        };
        while is_old(self.looks.get(1)) {
            self.looks.pop_front();
        }
    }

    /// What was added until this look.
    #[must_use]
    pub fn recent(&self, now: &Reading) -> Recent {
        let (mut added, mut longest) = (Waits::default(), 0);
        for node in &now.nodes {
            let Ok(said) = &node.said else { continue };
            let mut before = self
                .looks
                .iter()
                .filter_map(|(_, look)| look.get(&node.address));
            if let Some(first) = before.next() {
                added.add(&said.waits.since(first));
                longest = said.counters.wait_max.max(longest);
            }
        }
        let seen = self.looks.front().map(|(at, _)| now.at.saturating_sub(*at));
        // No wait was longer than the longest of all time.
        let at_most = |percent| {
            let bound = added.at_most(percent).unwrap_or(u64::MAX);
            (added.all > 0).then(|| bound.min(longest))
        };
        Recent {
            seconds: seen.unwrap_or_default().min(MINUTE).as_secs(),
            waits: added.all,
            p50_usec: at_most(50),
            p99_usec: at_most(99),
            max_usec: at_most(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reading::{Counters, Node, Said};
    use super::*;

    fn info(counts: [u64; 3], all: u64) -> String {
        let [short, middle, long] = counts;
        format!(
            "fairlock_wait_time_usec_le_100:{short}\r\nfairlock_wait_time_usec_le_1000:{middle}\r\n\
             fairlock_wait_time_usec_le_10000:{long}\r\nfairlock_wait_time_usec_sum:1\r\n\
             fairlock_wait_time_usec_count:{all}\r\nfairlock_hold_time_usec_le_100:9\r\n"
        )
    }

    fn look(seconds: u64, nodes: &[(&str, [u64; 3], u64)]) -> Reading {
        let nodes = nodes.iter().map(|(address, counts, all)| Node {
            address: (*address).to_owned(),
            said: Ok(Said {
                counters: Counters {
                    wait_max: 70_000,
                    ..Counters::default()
                },
                waits: Waits::read(&info(*counts, *all)),
                ..Said::default()
            }),
        });
        Reading {
            at: Duration::from_secs(seconds),
            nodes: nodes.collect(),
        }
    }

    fn recent(looks: &[Reading]) -> Recent {
        let mut window = Window::default();
        for look in looks {
            window.take(look);
        }
        window.recent(looks.last().expect("a look"))
    }

    #[test]
    fn what_was_added_in_between_is_counted() {
        let before = look(0, &[("a", [100, 100, 100], 100)]);
        let none = recent(&[before.clone(), before.clone()]);
        assert_eq!((none.waits, none.p50_usec, none.max_usec), (0, None, None));
        let after = look(10, &[("a", [150, 199, 200], 200)]);
        let recent = recent(&[before, after]);
        assert_eq!((recent.seconds, recent.waits), (10, 100));
        assert_eq!(recent.p50_usec, Some(100));
        assert_eq!(recent.p99_usec, Some(1_000));
        assert_eq!(recent.max_usec, Some(10_000));
    }

    #[test]
    fn what_is_beyond_all_bounds_is_no_longer_than_the_longest() {
        let looks = [
            look(0, &[("a", [0, 0, 0], 0)]),
            look(1, &[("a", [0, 0, 1], 3)]),
        ];
        assert_eq!(recent(&looks).p50_usec, Some(70_000));
    }

    #[test]
    fn servers_add_up_and_one_that_was_restarted_counts_from_nothing() {
        let looks = [
            look(0, &[("a", [9, 9, 9], 9), ("b", [50, 50, 50], 50)]),
            look(
                5,
                &[
                    ("a", [10, 10, 10], 10),
                    ("b", [0, 0, 1], 1),
                    ("new", [7, 7, 7], 7),
                ],
            ),
        ];
        let recent = recent(&looks);
        assert_eq!(recent.waits, 2);
        assert_eq!(
            (recent.p50_usec, recent.p99_usec),
            (Some(100), Some(10_000))
        );
    }

    #[test]
    fn what_is_older_than_a_minute_is_left_out() {
        let mut looks = vec![look(0, &[("a", [0, 0, 0], 0)])];
        looks.extend((1..=100).map(|second| look(second, &[("a", [second; 3], second)])));
        let recent = recent(&looks);
        assert_eq!((recent.seconds, recent.waits), (60, 60));
        // However often it is looked at, not every look is kept.
        let mut window = Window::default();
        for _ in 0..1_000 {
            window.take(&look(7, &[]));
        }
        assert_eq!(window.looks.len(), 1);
    }
}
