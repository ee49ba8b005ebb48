//! Prometheus' text format.
//!
//! The format: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::time::{Duration, SystemTime};

use super::families::{FAMILIES, HISTOGRAMS, Histogram, Kind};

/// One server at one look.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it is.
    pub address: String,
    /// What it said; `None` if it did not answer.
    pub said: Option<Said>,
}

/// What INFO says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The module's fields, without their prefix.
    fields: BTreeMap<String, u64>,
    /// It is a replica, which knows of no waiters.
    is_replica: bool,
}

impl Said {
    /// Reads the sections `fairlock` and `replication`; `None` if the module is not loaded.
    #[must_use]
    pub fn read(info: &str) -> Option<Self> {
        let pairs = info.lines().filter_map(|line| line.split_once(':'));
        let fields: BTreeMap<_, _> = pairs
            .filter_map(|(name, value)| {
                let name = name.strip_prefix("fairlock_")?;
                Some((name.to_owned(), value.trim().parse().ok()?))
            })
            .collect();
        let is_replica = info.lines().any(|line| line.trim_end() == "role:slave");
        (!fields.is_empty()).then_some(Self { fields, is_replica })
    }

    fn value(&self, field: &str) -> Option<String> {
        let value = *self.fields.get(field)?;
        Some(if field.ends_with("_usec") {
            seconds(value)
        } else {
            value.to_string()
        })
    }

    /// The buckets of a histogram, each an upper bound in microseconds and how many are in it or in one below, in
    /// order; then the number of all, and their sum in microseconds. `None` if INFO has none of them.
    fn histogram(&self, fields: &str) -> Option<(BTreeMap<u64, u64>, u64, u64)> {
        let buckets = self.fields.iter().filter_map(|(name, count)| {
            let bound = name.strip_prefix(fields)?.strip_prefix("le_")?;
            Some((bound.parse().ok()?, *count))
        });
        let count = self.fields.get(&format!("{fields}count"))?;
        let sum = self.fields.get(&format!("{fields}sum"))?;
        Some((buckets.collect(), *count, *sum))
    }
}

fn seconds(micros: u64) -> String {
    Duration::from_micros(micros).as_secs_f64().to_string()
}

/// The metrics of all servers, read at one time.
#[must_use]
pub fn text(nodes: &[Node], at: SystemTime) -> String {
    let mut text = String::new();
    let up = nodes
        .iter()
        .map(|node| sample(node, &[], &u8::from(node.said.is_some())));
    family(
        &mut text,
        "fairlock_up",
        Kind::Gauge,
        "Whether the server answered, and has the module.",
        up,
    );
    let replicas = nodes.iter().filter_map(|node| {
        let said = node.said.as_ref()?;
        Some(sample(node, &[], &u8::from(said.is_replica)))
    });
    family(
        &mut text,
        "fairlock_replica",
        Kind::Gauge,
        "Whether the server is a replica, which knows of no waiters.",
        replicas,
    );
    for metric in FAMILIES {
        let samples = metric.fields.iter().flat_map(|(field, labels)| {
            nodes.iter().filter_map(|node| {
                let value = node.said.as_ref()?.value(field)?;
                Some(sample(node, labels, &value))
            })
        });
        family(&mut text, metric.name, metric.kind, metric.help, samples);
    }
    for metric in HISTOGRAMS {
        histogram(&mut text, metric, nodes);
    }
    // A clock before 1970 is wrong.
    let at = at.duration_since(SystemTime::UNIX_EPOCH);
    let at = format!("{:.3}", at.unwrap_or_default().as_secs_f64());
    family(
        &mut text,
        "fairlock_metrics_timestamp_seconds",
        Kind::Gauge,
        "When the server was asked, in seconds since 1970.",
        nodes.iter().map(|node| sample(node, &[], &at)),
    );
    text
}

/// A family with its samples, each without the name; nothing if there are none.
fn family(
    text: &mut String,
    name: &str,
    kind: Kind,
    help: &str,
    samples: impl Iterator<Item = String>,
) {
    let mut samples = samples.peekable();
    if samples.peek().is_none() {
        return;
    }
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    };
    head(text, name, kind, help);
    for sample in samples {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(text, "{name}{sample}");
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A histogram of all servers that have it: buckets, sum and count of each together.
fn histogram(text: &mut String, metric: &Histogram, nodes: &[Node]) {
    let name = metric.name;
    let told: Vec<_> = nodes
        .iter()
        .filter_map(|node| Some((node, node.said.as_ref()?.histogram(metric.fields)?)))
        .collect();
    if !told.is_empty() {
        head(text, name, "histogram", metric.help);
    }
    for (node, (buckets, count, sum)) in told {
        for (bound, below) in buckets {
            let bound = seconds(bound);
            let bucket = sample(node, &[("le", &bound)], &below);
            let _ = writeln!(text, "{name}_bucket{bucket}");
        }
        let all = sample(node, &[("le", "+Inf")], &count);
        let (sum, count) = (sample(node, &[], &seconds(sum)), sample(node, &[], &count));
        let _ = writeln!(
            text,
            "{name}_bucket{all}\n{name}_sum{sum}\n{name}_count{count}"
        );
    }
}

/// The labels and the value.
fn sample(node: &Node, labels: &[(&str, &str)], value: &impl Display) -> String {
    let mut sample = "{".to_owned();
    for (name, value) in labels {
        let _ = write!(sample, "{name}=\"{value}\",");
    }
    let address = escape(&node.address);
    let _ = write!(sample, "node=\"{address}\"}} {value}");
    sample
}

/// A label's value: any text but for three characters.
fn escape(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Replication\r\nrole:master\r\n# fairlock\r\n\
        fairlock_acquisitions_immediate:7\r\nfairlock_acquisitions_handed_off:5\r\n\
        fairlock_wait_time_p99_usec:1500\r\nfairlock_scripts_lua_renew:18446744073709551615\r\n\
        fairlock_wait_time_usec_le_100:2\r\nfairlock_wait_time_usec_le_1000:3\r\n\
        fairlock_wait_time_usec_le_10000000:4\r\nfairlock_wait_time_usec_count:5\r\n\
        fairlock_wait_time_usec_sum:60002500\r\n";

    fn node(address: &str, info: Option<&str>) -> Node {
        Node {
            address: address.to_owned(),
            said: info.and_then(Said::read),
        }
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_500)
    }

    #[test]
    fn a_family_has_its_samples_of_all_servers_together() {
        let nodes = [
            node("a:1", Some(INFO)),
            node(
                "b:2",
                Some("role:slave\r\nfairlock_acquisitions_immediate:1"),
            ),
            node("c:3", None),
        ];
        let expected = "\
# HELP fairlock_up Whether the server answered, and has the module.
# TYPE fairlock_up gauge
fairlock_up{node=\"a:1\"} 1
fairlock_up{node=\"b:2\"} 1
fairlock_up{node=\"c:3\"} 0
# HELP fairlock_replica Whether the server is a replica, which knows of no waiters.
# TYPE fairlock_replica gauge
fairlock_replica{node=\"a:1\"} 0
fairlock_replica{node=\"b:2\"} 1
# HELP fairlock_acquisitions_total Locks taken: without waiting, by a waiter, or once more by their holders.
# TYPE fairlock_acquisitions_total counter
fairlock_acquisitions_total{way=\"immediate\",node=\"a:1\"} 7
fairlock_acquisitions_total{way=\"immediate\",node=\"b:2\"} 1
fairlock_acquisitions_total{way=\"handed_off\",node=\"a:1\"} 5
# HELP fairlock_wait_percentile_seconds Percentiles of the time that waiters waited for their lock, since the module was loaded.
# TYPE fairlock_wait_percentile_seconds gauge
fairlock_wait_percentile_seconds{percentile=\"99\",node=\"a:1\"} 0.0015
# HELP fairlock_scripts_total Redisson's scripts: intercepted, that is run natively, or left to Lua.
# TYPE fairlock_scripts_total counter
fairlock_scripts_total{how=\"lua\",kind=\"renew\",node=\"a:1\"} 18446744073709551615
# HELP fairlock_wait_seconds How long the waiters waited that got their lock.
# TYPE fairlock_wait_seconds histogram
fairlock_wait_seconds_bucket{le=\"0.0001\",node=\"a:1\"} 2
fairlock_wait_seconds_bucket{le=\"0.001\",node=\"a:1\"} 3
fairlock_wait_seconds_bucket{le=\"10\",node=\"a:1\"} 4
fairlock_wait_seconds_bucket{le=\"+Inf\",node=\"a:1\"} 5
fairlock_wait_seconds_sum{node=\"a:1\"} 60.0025
fairlock_wait_seconds_count{node=\"a:1\"} 5
# HELP fairlock_metrics_timestamp_seconds When the server was asked, in seconds since 1970.
# TYPE fairlock_metrics_timestamp_seconds gauge
fairlock_metrics_timestamp_seconds{node=\"a:1\"} 1.500
fairlock_metrics_timestamp_seconds{node=\"b:2\"} 1.500
fairlock_metrics_timestamp_seconds{node=\"c:3\"} 1.500
";
        assert_eq!(text(&nodes, now()), expected);
    }

    #[test]
    fn an_address_can_be_any_text() {
        let text = text(&[node("/a\"b\\c\nd", None)], now());
        assert!(
            text.contains("fairlock_up{node=\"/a\\\"b\\\\c\\nd\"} 0\n"),
            "{text}"
        );
    }

    #[test]
    fn without_the_module_there_is_nothing_to_read() {
        assert_eq!(Said::read("# Replication\r\nrole:master\r\n"), None);
    }

    #[test]
    fn counters_are_named_as_such() {
        for family in FAMILIES {
            assert_eq!(
                family.name.ends_with("_total"),
                family.kind == Kind::Counter,
                "{}",
                family.name
            );
        }
    }
}
