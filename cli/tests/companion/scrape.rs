//! The output of `fairlock metrics`, read by an independent parser; and a server where everything that is counted has
//! happened.

use std::collections::BTreeSet;

use fairlock_testing::{Blocked, Client, Server, wait_until};
use prometheus_parse::{Sample, Scrape, Value};

use crate::program::Program;

/// The digest of the script by which Redisson's watchdog renewed a lease up to release 3.43.0.
const RENEW: &str = "8e19a1ddbdee9138df9f32a480c57addab4353d1";

/// What a histogram's samples are called besides its name; each is a counter, as queries use them.
const PARTS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// The lines of metrics, with what describes a histogram said of each of its counters: the parser would
/// put all buckets into one sample.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let histograms: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" histogram"))
        .collect();
    let each = move |line: &str| {
        let mut words = line.splitn(4, ' ').skip(1);
        let (Some(word), Some(name)) = (words.next(), words.next()) else {
            return vec![line.to_owned()];
        };
        if !line.starts_with("# ") || !histograms.contains(&name) {
            return vec![line.to_owned()];
        }
        let text = if word == "TYPE" { "counter" } else { "..." };
        let described = |part| format!("# {word} {name}{part} {text}");
        PARTS.map(described).to_vec()
    };
    text.lines().flat_map(each).collect::<Vec<_>>().into_iter()
}

/// Reads metrics. Each line must be understood, and each sample be there once and described.
#[track_caller]
pub fn read(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'), "cut off: {text}");
    let scrape = Scrape::parse(lines(text).map(Ok)).expect("Prometheus' text format");
    let values = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(scrape.samples.len(), values, "{text}");
    let mut seen = BTreeSet::new();
    for sample in &scrape.samples {
        let name = &sample.metric;
        assert!(seen.insert(format!("{name} {}", sample.labels)), "{text}");
        assert!(scrape.docs.contains_key(name), "no HELP: {name}");
        let counted = matches!(sample.value, Value::Counter(_));
        let named = name.ends_with("_total") || PARTS.iter().any(|part| name.ends_with(part));
        assert_eq!(counted, named, "{sample:?}");
        assert!(
            counted || matches!(sample.value, Value::Gauge(_)),
            "no TYPE: {name}"
        );
    }
    scrape.samples
}

/// What the program prints of a server that answers.
#[track_caller]
pub fn samples(server: &Server) -> Vec<Sample> {
    let ended = Program::ended(server.port, &["metrics"]);
    assert_eq!((ended.code, ended.errors.as_str()), (0, ""));
    read(&ended.out)
}

/// The one value of a metric with these labels.
#[track_caller]
pub fn value(samples: &[Sample], metric: &str, labels: &[(&str, &str)]) -> f64 {
    let found: Vec<_> = samples
        .iter()
        .filter(|sample| sample.metric == metric)
        .filter(|sample| {
            let has = |(name, value): &(&str, &str)| sample.labels.get(name) == Some(*value);
            labels.iter().all(has)
        })
        .collect();
    let [sample] = found.as_slice() else {
        panic!("{metric} {labels:?}: {found:?} of {samples:?}");
    };
    match sample.value {
        Value::Counter(value) | Value::Gauge(value) => value,
        _ => panic!("{sample:?}"),
    }
}

/// A server where all that is counted has happened at least once. One client waits, one has a session.
pub struct Busy {
    pub server: Server,
    _session: Client,
    _waiter: Blocked,
}

impl Busy {
    pub fn start() -> Self {
        let server = Server::with(&["--fairlock.turn", "50"]);
        let mut client = server.connect();
        get_locks(&server, &mut client);
        lose_locks(&server, &mut client);
        client.run("CONFIG SET fairlock.intercept-eval yes");
        // An argument that is not a whole number is left to Lua, and counted so.
        for lease in ["30000", "x"] {
            client.run(&format!("EVALSHA {RENEW} 1 k {lease} b"));
        }
        client.int("FAIRLOCK.ACQUIRE bound a SESSION");
        let waiter = server.block("FAIRLOCK.ACQUIRE k z");
        Self {
            server,
            _session: client,
            _waiter: waiter,
        }
    }
}

/// `k` goes from `a` to `b`.
fn get_locks(server: &Server, client: &mut Client) {
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    client.run("FAIRLOCK.RELEASE k a ALL");
    waiter.int();
}

/// Clients fail to get `k`, each in its own way; a lease ends, and a waiter is dropped as dead.
fn lose_locks(server: &Server, client: &mut Client) {
    let count = |field: &str| server.info("fairlock", &format!("fairlock_{field}"));
    client.run("FAIRLOCK.ACQUIRE k c WAIT 1");
    client.run("FAIRLOCK.ACQUIRE k c ENQUEUE");
    client.run("FAIRLOCK.CANCEL k c");
    server.block("FAIRLOCK.ACQUIRE k d").disconnect();
    wait_until("the closed connection is noticed", || {
        count("disconnects") == "1"
    });
    let first = server.block("FAIRLOCK.ACQUIRE k e");
    let second = server.block("FAIRLOCK.ACQUIRE k e WAIT 50");
    first.reply();
    second.reply();
    client.int("FAIRLOCK.ACQUIRE short a LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE short dead ENQUEUE");
    let waiter = server.block("FAIRLOCK.ACQUIRE short b");
    // Only when all wait for its end.
    client.int("FAIRLOCK.RENEW short a LEASE 50");
    waiter.int();
}
