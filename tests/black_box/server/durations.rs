//! Durations in `INFO fairlock`: percentiles, and numbers counted by upper bounds, as histograms of Prometheus are.

use std::collections::BTreeMap;

use fairlock_testing::{Server, wait_until};

use super::stats::stats;

/// How many durations of a kind took at most each number of microseconds.
fn by_bound(stats: &BTreeMap<String, i64>, kind: &str) -> BTreeMap<i64, i64> {
    let prefix = format!("{kind}_usec_le_");
    let bounds = stats
        .iter()
        .filter_map(|(name, count)| Some((name.strip_prefix(&prefix)?, *count)));
    bounds
        .map(|(bound, count)| (bound.parse().unwrap_or(i64::MAX), count))
        .collect()
}

#[test]
fn bounds_reach_from_less_than_a_hand_off_takes_to_an_hour() {
    let stats = stats(&Server::start());
    for kind in ["wait_time", "hold_time"] {
        let bounds: Vec<_> = by_bound(&stats, kind).into_keys().collect();
        assert_eq!(bounds.len(), 16, "{bounds:?}");
        assert_eq!((bounds[0], bounds[14]), (100, 3_600_000_000));
        assert_eq!(bounds[15], i64::MAX);
    }
}

#[test]
fn each_duration_counts_in_its_bucket_and_all_above() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    // The waiter began after the holder, so that both are at least as long.
    let left = client.int("PTTL k");
    wait_until("a while has passed", || client.int("PTTL k") < left - 120);
    client.int("FAIRLOCK.RELEASE k a");
    waiter.int();
    for _ in 0..100 {
        client.int("FAIRLOCK.ACQUIRE short a");
        client.int("FAIRLOCK.RELEASE short a");
    }
    let stats = stats(&server);
    let time = |name: &str| stats[&format!("{name}_usec")];
    let of = |name: &str| stats[&format!("{name}_usec_count")];
    let sum = |name: &str| stats[&format!("{name}_usec_sum")];
    assert_eq!((of("wait_time"), of("hold_time")), (1, 101));
    let wait = sum("wait_time");
    assert!(wait > 100_000 && sum("hold_time") > wait);
    for (bound, count) in by_bound(&stats, "wait_time") {
        // The histogram is good for two digits.
        if bound < wait / 102 * 100 {
            assert_eq!(count, 0, "{bound}");
        }
        if bound >= wait {
            assert_eq!(count, 1, "{bound}");
        }
    }
    let holds = by_bound(&stats, "hold_time");
    let counts: Vec<_> = holds.values().copied().collect();
    assert!(counts.is_sorted(), "{counts:?}");
    // The long one is in no bucket below its own, the short ones are in the last, too.
    assert!(holds[&100_000] <= 100, "{counts:?}");
    assert_eq!(counts[14], 101);
    assert!(time("wait_time_p50") > 100_000 && time("wait_time_max") > 100_000);
    // The median is that of the short ones.
    assert!(time("hold_time_p50") < 100_000, "{stats:?}");
    assert!(time("hold_time_p50") <= time("hold_time_p99"), "{stats:?}");
    assert!(time("hold_time_p99") <= time("hold_time_max"), "{stats:?}");
    assert!(time("hold_time_max") >= 115_000, "{stats:?}");
}
