//! `fairlock metrics`, and its `--listen`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use fairlock_testing::{Program, Server, paths, wait_until};

use crate::program;

/// Reads metrics: samples by their names, as `up{node=127.0.0.1:6379}`. Each must be there once.
#[track_caller]
pub fn read(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (sample, number) = line.rsplit_once(' ').expect("a value");
        let name = sample.strip_prefix("fairlock_").expect(sample);
        let number = number.parse().expect("a number");
        let before = samples.insert(name.replace('"', ""), number);
        assert!(before.is_none(), "{sample}");
    }
    samples
}

/// Of each kind one: how many of the field's units are one of the metric's, the field, and the metric.
const KINDS: &str = "\
    1    releases                     releases_total{NODE}
    1    blocked_clients              blocked_clients{NODE}
    1    acquisitions_handed_off      acquisitions_total{way=handed_off,NODE}
    1e6  wait_time_max_usec           wait_percentile_seconds{percentile=100,NODE}
    1e6  hold_time_p99_usec           hold_percentile_seconds{percentile=99,NODE}
    1    wait_time_usec_le_600000000  wait_seconds_bucket{NODE,le=600}
    1    wait_time_usec_count         wait_seconds_bucket{NODE,le=+Inf}
    1    wait_time_usec_count         wait_seconds_count{NODE}
    1e6  hold_time_usec_sum           hold_seconds_sum{NODE}";

/// The metrics' names in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
    words.filter(|word| word.starts_with("fairlock_")).collect()
}

#[test]
fn every_field_of_info_is_a_metric_with_its_value_and_the_examples_ask_for_no_other() {
    let (server, mut client) = Server::connected();
    // `k` goes from `a` to `b`, and one more waits.
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    client.run("FAIRLOCK.RELEASE k a");
    waiter.int();
    let _waiter = server.block("FAIRLOCK.ACQUIRE k z");
    let printed = program::ended(server.port, "metrics").said();
    let samples = read(&printed);
    // Its title is none; whether it answers, is a replica, and all of each histogram come to it.
    let lines = client.run("INFO fairlock").lines().count();
    assert_eq!(samples.len(), lines - 1 + 4, "{samples:?}");
    let node = format!("node=127.0.0.1:{}", server.port);
    assert!(samples.keys().all(|sample| sample.contains(&node)));
    let scripts = format!("scripts_total{{how=lua,kind=renew,{node}}}");
    assert_eq!(samples[&scripts], 0.0);
    for kind in KINDS.lines() {
        let mut words = kind.split_whitespace();
        let [unit, field, metric] = [(); 3].map(|()| words.next().expect(kind));
        let number = server.info("fairlock", &format!("fairlock_{field}"));
        let [unit, number] = [unit, &number].map(|text| text.parse::<f64>().expect("a number"));
        let value = samples[&metric.replace("NODE", &node)];
        // A 0 would prove nothing.
        let is_it = number > 0.0 && (value * unit - number).abs() < 1e-3;
        assert!(is_it, "{kind}: {number}, {value}");
    }
    let there = printed.lines().filter(|line| !line.starts_with('#'));
    let there = there.filter_map(|line| line.split('{').next()).collect();
    let folder = paths::root().join("examples/metrics");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("an example");
    let (dashboard, alerts) = (text("grafana-dashboard.json"), text("fairlock-alerts.yml"));
    serde_json::from_str::<serde_json::Value>(&dashboard).expect("JSON");
    assert_eq!(names(&dashboard), there);
    assert!(names(&alerts).is_subset(&there), "{alerts}");
    // What an alert leaves out; a name that is not there would leave out nothing.
    assert!(printed.contains("way=\"reentrant\""));
}

/// The program, listening on all addresses of the machine at a port that the system chose.
pub fn listening(server: &Server) -> (Program, u16) {
    let program = program::start(server.port, "metrics --listen :0");
    program.wait_for_error("/metrics");
    let said = program.printed("errors");
    let port = said.rsplit([':', '/']).nth(1).expect(&said);
    (program, port.parse().expect(&said))
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).expect("it listens")
}

/// A connection carries one answer: its status and its body.
pub fn get(port: u16, path: &str) -> (u16, String) {
    let (mut stream, mut text) = (connect(port), String::new());
    let longest = Some(Duration::from_mins(1));
    stream.set_read_timeout(longest).expect("a time limit");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: me\r\n\r\n").expect("sent");
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), body.to_owned())
}

#[test]
fn prometheus_gets_the_figures_of_the_moment_until_sigterm_whatever_happens() {
    let (server, mut client) = Server::connected();
    let (program, port) = listening(&server);
    let _silent: Vec<_> = (0..80).map(|_| connect(port)).collect();
    // Longer than any head; it may be hung up on before all is sent.
    let _ = connect(port).write_all(&vec![0xff; 1 << 20]);
    let node = format!("node=127.0.0.1:{}", server.port);
    let says = |metric: &str| read(&get(port, "/metrics").1)[&metric.replace("NODE", &node)];
    let taken = "acquisitions_total{way=immediate,NODE}";
    assert_eq!(says(taken), 0.0);
    client.int("FAIRLOCK.ACQUIRE k me");
    assert_eq!(says(taken), 1.0);
    assert_eq!(get(port, "/metric").0, 404);
    let address = format!("127.0.0.1:{port}");
    let second = program::ended(server.port, format!("metrics --listen {address}"));
    second.failed(1, &format!("cannot listen on {address}: "));

    client.run("CONFIG SET requirepass secret");
    client.run("CLIENT KILL TYPE normal SKIPME yes");
    wait_until("it is gone", || says("up{NODE}") == 0.0);
    // The operator is told once, however often it is asked.
    assert_eq!(says("up{NODE}"), 0.0);
    // The program itself is well, and must not be restarted for that.
    assert_eq!(get(port, "/healthz").0, 200);
    let freed = client.raw(&[b"CONFIG", b"SET", b"requirepass", b""]);
    freed.expect("no password any more");
    wait_until("the server is back", || says("up{NODE}") == 1.0);
    // It answers first and tells the operator next.
    program.wait_for_error("all servers answer again");
    program.signal("TERM");
    let ended = program.end();
    let told = ended.errors.matches("wants a password").count();
    assert_eq!((ended.code, told), (0, 1), "{ended:?}");
}
