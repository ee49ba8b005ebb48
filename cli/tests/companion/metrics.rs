//! `fairlock metrics`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use fairlock_cli::metrics::families::{FAMILIES, Family, HISTOGRAMS};
use fairlock_testing::{Server, follow};

use crate::cluster::cluster;
use crate::program::Program;
use crate::scrape::{Busy, Samples, read, samples, value};

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
    let (of_histograms, others): (Vec<_>, Vec<_>) =
        fields(&busy.server).into_iter().partition(|(name, _)| {
            let mut all = HISTOGRAMS.iter();
            all.any(|histogram| histogram.part_of(name).is_some())
        });
    check_histograms(&samples, &of_histograms);
    let mut served = BTreeSet::new();
    for (field, number) in &others {
        let of_it = FAMILIES.iter().find_map(|family| {
            let labels = family.labels_of(field)?;
            Some((family.name, labels))
        });
        let (name, labels) = of_it.unwrap_or_else(|| panic!("{field} is no metric"));
        served.insert(name);
        let unit = if field.ends_with("_usec") { 1e6 } else { 1.0 };
        let value = value(&samples, name, &labels);
        assert!((value * unit - number).abs() < 1e-3, "{field}: {value}");
        // A 0 would prove nothing: only scripts that did not come are 0, and they differ.
        let came = !field.starts_with("scripts_") || field.ends_with("_renew");
        assert_eq!(*number > 0.0, came, "{field}");
    }
    assert_eq!(served.len(), FAMILIES.len(), "{served:?}");
}

/// Each field of a histogram is one of its samples.
#[track_caller]
fn check_histograms(samples: &Samples, fields: &[(String, f64)]) {
    for (field, number) in fields {
        let part = |histogram: &Family| Some((histogram.name, histogram.part_of(field)?));
        let (name, part) = HISTOGRAMS.iter().find_map(part).expect("its histogram");
        let value =
            |part: &str, labels: &[(&str, &str)]| value(samples, &format!("{name}_{part}"), labels);
        match part {
            "sum" => assert!((value("sum", &[]) * 1e6 - number).abs() < 1e-3, "{field}"),
            "count" => {
                assert!(*number > 0.0, "{field}");
                assert_eq!(value("count", &[]), *number);
                assert_eq!(value("bucket", &[("le", "+Inf")]), *number);
            }
            bound => {
                let micros: f64 = bound["le_".len()..].parse().expect("a number");
                let bound = (micros / 1e6).to_string();
                assert_eq!(value("bucket", &[("le", &bound)]), *number, "{field}");
            }
        }
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
        assert_eq!(value(&samples, "fairlock_up", &[]), 1.0);
        assert_eq!(value(&samples, "fairlock_replica", &[]), is_replica);
    }
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
    let gone = rest.keys().filter(|sample| sample.contains(&nodes[2]));
    let known: Vec<_> = gone.filter_map(|sample| sample.split('{').next()).collect();
    assert_eq!(known, ["fairlock_metrics_timestamp_seconds", "fairlock_up"]);
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

/// The metrics' names in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
    words.filter(|word| word.starts_with("fairlock_")).collect()
}

#[test]
fn the_examples_ask_for_what_is_there() {
    let busy = Busy::start();
    let printed = Program::ended(busy.server.port, &["metrics"]).out;
    let there = samples(&busy.server);
    let there: BTreeSet<_> = there
        .keys()
        .filter_map(|sample| sample.split('{').next())
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/metrics");
    let text = |name: &str| fs::read_to_string(folder.join(name)).expect("an example");
    let (dashboard, alerts) = (text("grafana-dashboard.json"), text("fairlock-alerts.yml"));
    serde_json::from_str::<serde_json::Value>(&dashboard).expect("JSON");
    assert_eq!(names(&dashboard), there);
    let alerts_ask = names(&alerts);
    assert!(alerts_ask.is_subset(&there), "{alerts_ask:?}");
    let matchers = alerts
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    for matcher in matchers.filter(|matcher| matcher.contains('"')) {
        assert!(printed.contains(&matcher.replace("!=", "=")), "{matcher}");
    }
}
