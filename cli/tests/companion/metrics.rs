//! `fairlock metrics`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use fairlock_cli::metrics::families::{FAMILIES, HISTOGRAMS};
use fairlock_testing::{Server, follow, wait_until};
use prometheus_parse::Sample;

use crate::cluster::cluster;
use crate::program::{PATH, Program};
use crate::scrape::{Busy, read, samples, value};

/// The fields of INFO fairlock, without their prefix, and their values; not the commit, which is not a number.
fn fields(server: &Server) -> Vec<(String, f64)> {
    let info = server.connect().text("INFO fairlock");
    let pairs = info.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("fairlock_")?.split_once(':')?;
        (name != "commit").then(|| (name.to_owned(), number.parse().expect("a number")))
    });
    pairs.collect()
}

#[test]
fn every_field_of_info_is_a_metric_with_its_value() {
    let busy = Busy::start();
    let samples = samples(&busy.server);
    let fields = fields(&busy.server);
    let known = FAMILIES
        .iter()
        .flat_map(|family| family.fields.iter().map(|(field, _)| (*field).to_owned()));
    let of_histograms = |name: &str| HISTOGRAMS.iter().any(|it| name.starts_with(it.fields));
    let (of_histograms, others): (Vec<_>, Vec<_>) = fields
        .into_iter()
        .partition(|(name, _)| of_histograms(name));
    check_histograms(&samples, &of_histograms);
    let fields = others;
    let there = fields.iter().map(|(name, _)| name.clone());
    assert_eq!(
        known.collect::<BTreeSet<_>>(),
        there.collect::<BTreeSet<_>>()
    );
    for family in FAMILIES {
        for (field, labels) in family.fields {
            let (_, number) = fields
                .iter()
                .find(|(name, _)| name == field)
                .expect("a field");
            let unit = if field.ends_with("_usec") { 1e6 } else { 1.0 };
            let value = value(&samples, family.name, labels);
            assert!((value * unit - number).abs() < 1e-3, "{field}: {value}");
        }
    }
    // A 0 would prove nothing: only scripts that did not come are 0, and they differ.
    for (name, number) in &fields {
        let came = !name.starts_with("scripts_") || name.ends_with("_renew");
        assert_eq!(*number > 0.0, came, "{name}");
    }
}

/// Each field of a histogram is one of its samples.
#[track_caller]
fn check_histograms(samples: &[Sample], fields: &[(String, f64)]) {
    let mut checked = 0;
    for histogram in HISTOGRAMS {
        let mut before = 0.0;
        let of_it = samples
            .iter()
            .filter(|sample| sample.metric == format!("{}_bucket", histogram.name));
        let bounds = of_it.map(|sample| sample.labels.get("le").expect("a bound").to_owned());
        for bound in bounds {
            let metric = format!("{}_bucket", histogram.name);
            let count = value(samples, &metric, &[("le", &bound)]);
            assert!(count >= before, "{metric} {bound}: not cumulative");
            before = count;
            let micros = bound.parse::<f64>().expect("a number") * 1e6;
            let name = if micros.is_finite() {
                format!("{}le_{micros:.0}", histogram.fields)
            } else {
                format!("{}count", histogram.fields)
            };
            assert!(
                fields.contains(&(name.clone(), count)),
                "{name}: {fields:?}"
            );
            checked += 1;
        }
        let count = value(samples, &format!("{}_count", histogram.name), &[]);
        assert_eq!(before, count, "the last bucket has all");
        let sum = value(samples, &format!("{}_sum", histogram.name), &[]);
        let field = format!("{}sum", histogram.fields);
        let has_sum =
            |(name, number): &(String, f64)| *name == field && (sum * 1e6 - number).abs() < 1e-3;
        assert!(fields.iter().any(has_sum), "{field}: {sum}");
        assert!(count > 0.0 && sum > 0.0, "{samples:?}");
        checked += 1;
    }
    assert_eq!(checked, fields.len(), "{fields:?}");
}

#[test]
fn each_sample_says_of_which_server_it_is() {
    let server = Server::start();
    let node = format!("127.0.0.1:{}", server.port);
    let samples = samples(&server);
    for sample in &samples {
        assert_eq!(sample.labels.get("node"), Some(node.as_str()), "{sample:?}");
    }
    assert_eq!(value(&samples, "fairlock_up", &[]), 1.0);
    assert_eq!(value(&samples, "fairlock_replica", &[]), 0.0);
}

#[test]
fn a_replica_is_shown_as_such() {
    let (master, replica) = (Server::start(), Server::start());
    follow(&replica, &master);
    assert_eq!(value(&samples(&replica), "fairlock_replica", &[]), 1.0);
}

#[test]
fn in_a_cluster_all_masters_are_asked_and_one_that_is_gone_is_shown() {
    let mut servers = cluster();
    servers[0].connect().int("FAIRLOCK.ACQUIRE b me");
    let nodes = servers
        .each_ref()
        .map(|server| format!("127.0.0.1:{}", server.port));
    let all = samples(&servers[1]);
    for (number, node) in nodes.iter().enumerate() {
        let node = ("node", node.as_str());
        assert_eq!(value(&all, "fairlock_up", &[node]), 1.0);
        let taken = value(
            &all,
            "fairlock_acquisitions_total",
            &[node, ("way", "immediate")],
        );
        assert_eq!(taken, if number == 0 { 1.0 } else { 0.0 });
    }
    servers[2].signal("KILL");
    servers[2].exit_code();
    let ended = Program::ended(servers[1].port, &["metrics"]);
    assert_eq!(ended.code, 69, "{ended:?}");
    let gone = format!("cannot reach the server at {}", nodes[2]);
    assert!(ended.errors.contains(&gone), "{ended:?}");
    let rest = read(&ended.out);
    for (node, up) in nodes.iter().zip([1.0, 1.0, 0.0]) {
        assert_eq!(value(&rest, "fairlock_up", &[("node", node)]), up);
    }
    let gone = |sample: &&Sample| sample.labels.get("node") == Some(nodes[2].as_str());
    let known: BTreeSet<_> = rest.iter().filter(gone).map(|it| &it.metric[..]).collect();
    let expected = ["fairlock_metrics_timestamp_seconds", "fairlock_up"];
    assert_eq!(known, BTreeSet::from(expected));
}

#[test]
fn a_server_that_does_not_answer_is_printed_as_well() {
    let server = Server::without_module(&[]);
    let ended = Program::ended(server.port, &["metrics"]);
    assert_eq!(ended.code, 69, "{ended:?}");
    assert_eq!(value(&read(&ended.out), "fairlock_up", &[]), 0.0);
}

#[test]
fn a_user_needs_little_for_metrics() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("ACL SETUSER ann on >secret +info");
    let url = format!("redis://ann:secret@127.0.0.1:{}", server.port);
    let ended = Program::ended(1, &["--url", &url, "metrics"]);
    assert_eq!((ended.code, ended.errors.as_str()), (0, ""), "{ended:?}");
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let server = Server::start();
    // Its end is closed before anything is printed.
    let line = format!("({PATH} metrics; echo $? >&2) | true");
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]);
    let url = format!("redis://127.0.0.1:{}", server.port);
    let ended = shell.env("FAIRLOCK_URL", url).output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "0\n");
}

fn keep(port: u16, path: &Path) -> Program {
    let path = path.to_str().expect("a UTF-8 path");
    Program::start(port, &["metrics", "--textfile", path, "--interval", "5ms"])
}

/// Waits until the file has a line.
#[track_caller]
fn wait_for(path: &Path, line: &str) {
    wait_until(line, || {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().any(|found| found == line)
    });
}

#[test]
fn the_file_is_written_again_and_again_until_sigterm() {
    let (server, folder) = (Server::start(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("fairlock.prom");
    let program = keep(server.port, &path);
    let taken = |count: u8| {
        format!(
            "fairlock_acquisitions_total{{way=\"immediate\",node=\"127.0.0.1:{}\"}} {count}",
            server.port
        )
    };
    wait_for(&path, &taken(0));
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o444, 0o444, "node_exporter is another user");
    server.connect().int("FAIRLOCK.ACQUIRE k me");
    wait_for(&path, &taken(1));
    program.signal("TERM");
    let ended = program.end();
    assert_eq!((ended.code, ended.errors.as_str()), (0, ""), "{ended:?}");
    // The file is gone, because it would look as if nothing changed, and so is its temporary copy.
    let left = fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 0);
}

#[test]
fn a_reader_never_sees_half_a_file() {
    let (server, folder) = (Server::start(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("fairlock.prom");
    let _program = keep(server.port, &path);
    wait_until("the file is there", || path.exists());
    let mut seen = BTreeSet::new();
    wait_until("it was read in fifty versions", || {
        let text = fs::read_to_string(&path).expect("it is always there");
        let samples = read(&text);
        assert!(text.contains("\nfairlock_metrics_timestamp_seconds{"));
        assert_eq!(value(&samples, "fairlock_up", &[]), 1.0);
        seen.insert(text);
        seen.len() >= 50
    });
}

#[test]
fn a_server_that_goes_away_is_told_of_in_the_file_and_waited_for() {
    let (server, folder) = (Server::start(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("fairlock.prom");
    let program = keep(server.port, &path);
    let up = |up: u8| format!("fairlock_up{{node=\"127.0.0.1:{}\"}} {up}", server.port);
    wait_for(&path, &up(1));
    let mut client = server.connect();
    client.run("CONFIG SET requirepass secret");
    // The connection that it has goes on; a new one is refused.
    client.run("CLIENT KILL TYPE normal SKIPME yes");
    wait_for(&path, &up(0));
    program.wait_for_error("wants a password");
    let freed = client.raw(&[b"CONFIG", b"SET", b"requirepass", b""]);
    freed.expect("no password any more");
    wait_for(&path, &up(1));
    program.wait_for_error("all servers answer again");
    let told = program.errors().matches("wants a password").count();
    assert_eq!(told, 1, "{}", program.errors());
}

#[test]
fn a_file_that_cannot_be_written_ends_it() {
    let (server, folder) = (Server::start(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("missing/fairlock.prom");
    let ended = keep(server.port, &path).end();
    assert_eq!(ended.code, 1, "{ended:?}");
    let text = format!("cannot write {}: ", path.display());
    assert!(ended.errors.contains(&text), "{ended:?}");
}
