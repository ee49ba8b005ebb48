//! The output of `fairlock metrics`, and a server where everything that is counted has happened.

use std::collections::BTreeMap;

use fairlock_testing::{Blocked, Client, Server, wait_until};

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
        for word in ["HELP", "TYPE"] {
            let described = format!("# {word} {} ", family.unwrap_or(name));
            assert!(text.contains(&described), "no {described}");
        }
        let counted = text.contains(&format!("# TYPE {name} counter"));
        assert_eq!(counted, name.ends_with("_total"), "{name}");
        let number = number.parse().expect("a number");
        assert!(
            samples.insert(sample.to_owned(), number).is_none(),
            "{sample}"
        );
    }
    samples
}

/// What the program prints of a server that answers.
#[track_caller]
pub fn samples(server: &Server) -> Samples {
    let ended = Program::ended(server.port, &["metrics"]);
    assert_eq!((ended.code, ended.errors.as_str()), (0, ""));
    read(&ended.out)
}

/// The one value of a metric with these labels.
#[track_caller]
pub fn value(samples: &Samples, metric: &str, labels: &[(&str, &str)]) -> f64 {
    let is_it = |sample: &str| {
        let has = |(name, value): &(&str, &str)| sample.contains(&format!("{name}=\"{value}\""));
        sample.starts_with(&format!("{metric}{{")) && labels.iter().all(has)
    };
    let found: Vec<f64> = samples
        .iter()
        .filter(|(it, _)| is_it(it))
        .map(|(_, number)| *number)
        .collect();
    let [number] = found.as_slice() else {
        panic!("{metric} {labels:?}: {found:?} of {samples:?}");
    };
    *number
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
