//! Durations in `INFO fairlock`: percentiles, and numbers counted by upper bounds, as histograms of Prometheus are.

use std::collections::BTreeMap;

use fairlock_testing::{Server, wait_until};

use super::stats::stats;

/// The durations of one kind: how many took at most a number of microseconds.
struct Durations {
    by_bound: BTreeMap<u64, u64>,
    count: u64,
    sum: u64,
}

fn durations(server: &Server, kind: &str) -> Durations {
    let info = server.connect().run("INFO fairlock");
    let prefix = format!("fairlock_{kind}_usec_");
    let fields: BTreeMap<&str, u64> = info
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix)?.split_once(':'))
        .map(|(name, number)| (name, number.parse().expect("a plain number")))
        .collect();
    let bounds = fields.iter().filter_map(|(name, number)| {
        let bound = match name.strip_prefix("le_")? {
            "inf" => u64::MAX,
            bound => bound.parse().expect("a bound"),
        };
        Some((bound, *number))
    });
    Durations {
        by_bound: bounds.collect(),
        count: fields["count"],
        sum: fields["sum"],
    }
}

#[test]
fn nothing_is_counted_before_anything_has_happened() {
    let server = Server::start();
    for kind in ["wait_time", "hold_time"] {
        let none = durations(&server, kind);
        assert_eq!((none.count, none.sum), (0, 0));
        assert!(none.by_bound.values().all(|count| *count == 0));
        // From less than a hand-off takes to an hour.
        let bounds: Vec<_> = none.by_bound.keys().copied().collect();
        assert_eq!(bounds.len(), 16, "{bounds:?}");
        assert_eq!((bounds[0], bounds[14]), (100, 3_600_000_000));
        assert_eq!(bounds[15], u64::MAX);
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
    let waits = durations(&server, "wait_time");
    let holds = durations(&server, "hold_time");
    assert_eq!((waits.count, holds.count), (1, 101));
    assert!(waits.sum > 100_000 && holds.sum > waits.sum);
    for (bound, count) in &waits.by_bound {
        // The histogram is good for two digits.
        if *bound < waits.sum / 102 * 100 {
            assert_eq!(*count, 0, "{bound}");
        }
        if *bound >= waits.sum {
            assert_eq!(*count, 1, "{bound}");
        }
    }
    let counts: Vec<_> = holds.by_bound.values().copied().collect();
    assert!(counts.is_sorted(), "{counts:?}");
    // The long one is in no bucket below its own, the short ones are in the last, too.
    assert!(holds.by_bound[&100_000] <= 100, "{counts:?}");
    assert_eq!(counts[14], 101);
    let times = stats(&server);
    let time = |name: &str| times[&format!("{name}_usec")];
    assert!(time("wait_time_p50") > 100_000 && time("wait_time_max") > 100_000);
    // The median is that of the short ones.
    assert!(time("hold_time_p50") < 100_000, "{times:?}");
    assert!(time("hold_time_p50") <= time("hold_time_p99"), "{times:?}");
    assert!(time("hold_time_p99") <= time("hold_time_max"), "{times:?}");
    assert!(time("hold_time_max") >= 115_000, "{times:?}");
}
