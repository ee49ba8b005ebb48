//! `fairlock metrics`.

use std::collections::{BTreeMap, BTreeSet};

use fairlock_testing::{Blocked, Server, follow, paths};

use crate::program::Program;

/// The digest of the script by which Redisson's watchdog renewed a lease up to release 3.43.0.
const RENEW: &str = "8e19a1ddbdee9138df9f32a480c57addab4353d1";

/// Samples, by their names with labels.
pub type Samples = BTreeMap<String, f64>;

/// Reads metrics. Each sample must be there once and described.
#[track_caller]
pub fn read(text: &str) -> Samples {
    assert!(text.ends_with('\n'), "cut off: {text}");
    let mut samples = Samples::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (sample, number) = line.rsplit_once(' ').expect("a value");
        let name = sample.split('{').next().expect("a name");
        let parts = ["_bucket", "_sum", "_count"];
        let family = parts.iter().find_map(|part| name.strip_suffix(part));
        let kind = match family {
            Some(_) => "histogram",
            None if name.ends_with("_total") => "counter",
            None => "gauge",
        };
        let family = family.unwrap_or(name);
        for described in [
            format!("# HELP {family} "),
            format!("# TYPE {family} {kind}\n"),
        ] {
            assert!(text.contains(&described), "no {described}");
        }
        let number = number.parse().expect("a number");
        let before = samples.insert(sample.to_owned(), number);
        assert!(before.is_none(), "{sample}");
    }
    samples
}

/// What the program prints of a server that answers.
#[track_caller]
fn samples(server: &Server) -> Samples {
    read(&Program::ended(server.port, &["metrics"]).said())
}

/// The one value of a metric with these labels.
#[track_caller]
pub fn value(samples: &Samples, metric: &str, labels: &[(&str, &str)]) -> f64 {
    let is_it = |sample: &str| {
        let has = |(name, value): &(&str, &str)| sample.contains(&format!("{name}=\"{value}\""));
        sample.starts_with(&format!("fairlock_{metric}{{")) && labels.iter().all(has)
    };
    let found = samples.iter().filter(|(sample, _)| is_it(sample));
    let found: Vec<f64> = found.map(|(_, number)| *number).collect();
    let [number] = found.as_slice() else {
        panic!("{metric} {labels:?}: {found:?} of {samples:?}");
    };
    *number
}

/// A server where something has happened; one client waits, one has a session.
fn busy() -> (Server, Blocked) {
    let (server, mut client) = Server::connected();
    // `k` goes from `a` to `b`.
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    client.run("FAIRLOCK.RELEASE k a");
    waiter.int();
    client.run("CONFIG SET fairlock.intercept-eval yes");
    // An argument that is not a whole number is left to Lua, and counted so.
    for lease in ["30000", "x"] {
        client.run(&format!("EVALSHA {RENEW} 1 k {lease} b"));
    }
    client.int("FAIRLOCK.ACQUIRE bound a SESSION");
    let waiter = server.block("FAIRLOCK.ACQUIRE k z");
    (server, waiter)
}

/// Of each kind one: how many of the field's units are one of the metric's, the field, the metric, its labels.
const KINDS: &str = "\
    1    releases                     releases_total
    1    blocked_clients              blocked_clients
    1    acquisitions_handed_off      acquisitions_total       way=handed_off
    1    scripts_lua_renew            scripts_total            how=lua kind=renew
    1e6  wait_time_max_usec           wait_percentile_seconds  percentile=100
    1e6  hold_time_p99_usec           hold_percentile_seconds  percentile=99
    1    wait_time_usec_le_600000000  wait_seconds_bucket      le=600
    1    wait_time_usec_count         wait_seconds_bucket      le=+Inf
    1    wait_time_usec_count         wait_seconds_count
    1e6  hold_time_usec_sum           hold_seconds_sum";

#[test]
fn every_field_of_info_is_a_metric_with_its_value() {
    let (server, _waiter) = busy();
    let samples = samples(&server);
    // Its title and the commit are none; whether it answers, is a replica, and all of each histogram come to it.
    let lines = server.connect().text("INFO fairlock").lines().count();
    assert_eq!(samples.len(), lines - 2 + 4, "{samples:?}");
    for kind in KINDS.lines() {
        let words: Vec<&str> = kind.split_whitespace().collect();
        let [unit, field, metric, labels @ ..] = &words[..] else {
            panic!("{kind}");
        };
        let unit: f64 = unit.parse().expect("a number");
        let number = server.info("fairlock", &format!("fairlock_{field}"));
        let number: f64 = number.parse().expect("a number");
        let labels = labels.iter().filter_map(|label| label.split_once('='));
        let value = value(&samples, metric, &labels.collect::<Vec<_>>());
        // A 0 would prove nothing.
        let is_it = number > 0.0 && (value * unit - number).abs() < 1e-3;
        assert!(is_it, "{kind}: {number}, {value}");
    }
}

#[test]
fn each_sample_says_of_which_server_it_is_and_a_replica_is_shown_as_such() {
    let (master, replica) = (Server::start(), Server::start());
    follow(&replica, &master);
    for (server, is_replica) in [(&master, 0.0), (&replica, 1.0)] {
        let label = format!("node=\"127.0.0.1:{}\"", server.port);
        let samples = samples(server);
        assert!(samples.keys().all(|sample| sample.contains(&label)));
        assert_eq!(value(&samples, "up", &[]), 1.0);
        assert_eq!(value(&samples, "replica", &[]), is_replica);
    }
}

/// The metrics' names in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
    words.filter(|word| word.starts_with("fairlock_")).collect()
}

#[test]
fn the_examples_ask_for_what_is_there() {
    let (server, ..) = busy();
    let printed = Program::ended(server.port, &["metrics"]).said();
    let there = read(&printed);
    let there = there.keys().filter_map(|sample| sample.split('{').next());
    let there: BTreeSet<_> = there.collect();
    let folder = paths::root().join("examples/metrics");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("an example");
    let (dashboard, alerts) = (text("grafana-dashboard.json"), text("fairlock-alerts.yml"));
    serde_json::from_str::<serde_json::Value>(&dashboard).expect("JSON");
    assert_eq!(names(&dashboard), there);
    assert!(names(&alerts).is_subset(&there), "{alerts}");
    let matchers = alerts
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    for matcher in matchers.filter(|matcher| matcher.contains('"')) {
        assert!(printed.contains(&matcher.replace("!=", "=")), "{matcher}");
    }
}
