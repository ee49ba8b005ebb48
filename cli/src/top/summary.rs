//! All servers together, and what has changed since the look before.

use serde::Serialize;

use super::reading::{Counters, Reading};
use super::recent::Recent;

/// The figures above the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Hand-offs a second since the look before; `None` if there is nothing to compare with.
    pub hand_offs_per_second: Option<f64>,
    /// Acquisitions a second, hand-offs included.
    pub acquisitions_per_second: Option<f64>,
    /// Median wait in microseconds since the module was loaded; of several servers the worst.
    pub wait_p50_usec: u64,
    /// The 99th percentile; of several servers the worst.
    pub wait_p99_usec: u64,
    /// The longest wait.
    pub wait_max_usec: u64,
    /// Clients blocked now.
    pub blocked_clients: u64,
    /// Locks bound to a connection now.
    pub session_locks: u64,
    /// Locks with waiters or a session, of all databases.
    pub locks: u64,
    /// How long waiters have waited in the last minute.
    pub recent: Recent,
}

impl Summary {
    /// Compares two looks.
    #[must_use]
    pub fn of(before: Option<&Reading>, now: &Reading) -> Self {
        let mut summary = Self::default();
        for counters in counters(now).map(|(_, counters)| counters) {
            let worst = |field: &mut u64, value: u64| *field = value.max(*field);
            worst(&mut summary.wait_p50_usec, counters.wait_p50);
            worst(&mut summary.wait_p99_usec, counters.wait_p99);
            worst(&mut summary.wait_max_usec, counters.wait_max);
            summary.blocked_clients += counters.blocked;
            summary.session_locks += counters.sessions;
            summary.locks += counters.tracked;
        }
        if let Some(before) = before {
            let rate = |field| rate(before, now, field);
            summary.hand_offs_per_second = rate(|counters| counters.handed_off);
            summary.acquisitions_per_second =
                rate(|counters| counters.immediate.saturating_add(counters.handed_off));
        }
        summary
    }
}

fn counters(reading: &Reading) -> impl Iterator<Item = (&str, &Counters)> {
    reading.nodes.iter().filter_map(|node| {
        let said = node.said.as_ref().ok()?;
        Some((node.address.as_str(), &said.counters))
    })
}

/// How fast a counter grows, over the servers that were there at both looks. One that was
/// restarted in between counts from nothing.
fn rate(before: &Reading, now: &Reading, field: fn(&Counters) -> u64) -> Option<f64> {
    let seconds = now.at.checked_sub(before.at)?.as_secs_f64();
    if seconds <= 0.0 {
        return None;
    }
    let mut grown: Option<u64> = None;
    for (address, after) in counters(now) {
        let Some((_, earlier)) = counters(before).find(|(found, _)| *found == address) else {
            continue;
        };
        let (after, earlier) = (field(after), field(earlier));
        let more = after.checked_sub(earlier).unwrap_or(after);
        grown = Some(grown.unwrap_or(0).saturating_add(more));
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "no counter grows by 2^53 in a second"
    )]
    grown.map(|grown| grown as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::reading::{Node, Said};
    use super::*;

    fn reading(millis: u64, nodes: &[(&str, u64, u64)]) -> Reading {
        let nodes = nodes.iter().map(|&(address, immediate, handed_off)| Node {
            address: address.to_owned(),
            said: Ok(Said {
                counters: Counters {
                    immediate,
                    handed_off,
                    wait_p99: handed_off,
                    blocked: 1,
                    ..Counters::default()
                },
                ..Said::default()
            }),
        });
        Reading {
            at: Duration::from_millis(millis),
            nodes: nodes.collect(),
        }
    }

    #[test]
    fn rates_need_two_looks() {
        let first = reading(0, &[("a", 5, 5)]);
        let summary = Summary::of(None, &first);
        assert_eq!(summary.hand_offs_per_second, None);
        let summary = Summary::of(Some(&first), &first);
        assert_eq!(summary.hand_offs_per_second, None);
        let summary = Summary::of(Some(&first), &reading(500, &[("a", 10, 15)]));
        assert_eq!(summary.hand_offs_per_second, Some(20.0));
        assert_eq!(summary.acquisitions_per_second, Some(30.0));
    }

    #[test]
    fn servers_add_up_and_the_worst_wait_is_shown() {
        let before = reading(0, &[("a", 0, 10), ("b", 0, 20)]);
        let now = reading(1000, &[("a", 0, 11), ("b", 0, 22), ("new", 0, 99)]);
        let summary = Summary::of(Some(&before), &now);
        assert_eq!(summary.hand_offs_per_second, Some(3.0));
        assert_eq!(summary.wait_p99_usec, 99);
        assert_eq!(summary.blocked_clients, 3);
    }

    #[test]
    fn a_server_that_was_restarted_counts_from_nothing() {
        let before = reading(0, &[("a", 0, 1000)]);
        let summary = Summary::of(Some(&before), &reading(1000, &[("a", 0, 4)]));
        assert_eq!(summary.hand_offs_per_second, Some(4.0));
    }

    #[test]
    fn a_server_that_does_not_answer_is_left_out() {
        let before = reading(0, &[("a", 0, 1), ("b", 0, 1)]);
        let mut now = reading(1000, &[("a", 0, 3), ("b", 0, 3)]);
        now.nodes[1].said = Err("gone".to_owned());
        let summary = Summary::of(Some(&before), &now);
        assert_eq!(summary.hand_offs_per_second, Some(2.0));
        assert_eq!(summary.blocked_clients, 1);
    }
}
