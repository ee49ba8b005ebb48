//! `fairlock metrics`.

use std::collections::{BTreeMap, BTreeSet};

use fairlock_cli::metrics::families::{is_gauge, metric};
use fairlock_testing::{Blocked, Client, Server, follow, paths, wait_until};

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

/// A server where all that is counted has happened at least once; one client waits, one has a session.
fn busy() -> (Server, Client, Blocked) {
    let (server, mut client) = Server::connected_with(&["--fairlock.turn", "50"]);
    // `k` goes from `a` to `b`.
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    client.run("FAIRLOCK.RELEASE k a ALL");
    waiter.int();
    // Clients fail to get it, each in its own way.
    client.run("FAIRLOCK.ACQUIRE k c WAIT 1");
    client.run("FAIRLOCK.ACQUIRE k c ENQUEUE");
    client.run("FAIRLOCK.CANCEL k c");
    server.block("FAIRLOCK.ACQUIRE k d").disconnect();
    wait_until("the closed connection is noticed", || {
        server.info("fairlock", "fairlock_disconnects") == "1"
    });
    let first = server.block("FAIRLOCK.ACQUIRE k e");
    let second = server.block("FAIRLOCK.ACQUIRE k e WAIT 50");
    first.reply();
    second.reply();
    // A lease ends, and a waiter is dropped as dead.
    client.int("FAIRLOCK.ACQUIRE short a LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE short dead ENQUEUE");
    let waiter = server.block("FAIRLOCK.ACQUIRE short b");
    client.int("FAIRLOCK.RENEW short a LEASE 50");
    waiter.int();
    client.run("CONFIG SET fairlock.intercept-eval yes");
    // An argument that is not a whole number is left to Lua, and counted so.
    for lease in ["30000", "x"] {
        client.run(&format!("EVALSHA {RENEW} 1 k {lease} b"));
    }
    client.int("FAIRLOCK.ACQUIRE bound a SESSION");
    let waiter = server.block("FAIRLOCK.ACQUIRE k z");
    (server, client, waiter)
}

#[test]
fn every_field_of_info_is_a_metric_with_its_value() {
    let (server, mut client, _waiter) = busy();
    let samples = samples(&server);
    for line in client.text("INFO fairlock").lines() {
        let field = line
            .strip_prefix("fairlock_")
            .and_then(|line| line.split_once(':'));
        let Some((field, number)) = field.filter(|(field, _)| *field != "commit") else {
            continue;
        };
        let number: f64 = number.parse().expect("a number");
        let (name, labels) = metric(field);
        let bound;
        // What the name ends in, the labels, and how many of the field's units are one.
        let (end, labels, unit) = match labels.first() {
            Some(("part", "sum")) => ("_sum", Vec::new(), 1e6),
            Some(("part", "count")) => ("_count", Vec::new(), 1.0),
            Some(("part", part)) => {
                let micros: f64 = part["le_".len()..].parse().expect("a number");
                bound = (micros / 1e6).to_string();
                ("_bucket", vec![("le", bound.as_str())], 1.0)
            }
            _ if name.ends_with("_seconds") => ("", labels, 1e6),
            _ if is_gauge(name) => ("", labels, 1.0),
            _ => ("_total", labels, 1.0),
        };
        let value = value(&samples, &format!("{name}{end}"), &labels);
        assert!((value * unit - number).abs() < 1e-3, "{field}: {value}");
        // A 0 would prove nothing: only scripts that did not come are 0, and they differ, and low buckets.
        let came = !field.starts_with("scripts_") || field.ends_with("_renew");
        assert!((number > 0.0) == came || field.contains("_le_"), "{field}");
    }
    for name in ["wait_seconds", "hold_seconds"] {
        let all = value(&samples, &format!("{name}_bucket"), &[("le", "+Inf")]);
        assert_eq!(value(&samples, &format!("{name}_count"), &[]), all);
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
