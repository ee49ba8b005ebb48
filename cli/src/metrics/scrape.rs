//! The metrics of all servers, in Prometheus' text format.

use std::fmt::Error;
use std::time::{Duration, SystemTime};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use crate::server::{Answer, Info};

use super::families::{FAMILIES, Family, HISTOGRAMS};

/// Names and values.
type Labels<'a> = Vec<(&'a str, &'a str)>;

/// All servers, asked at one time.
#[derive(Debug)]
pub struct Scrape {
    /// Their answers.
    pub nodes: Vec<Answer<Info>>,
    /// When.
    pub at: SystemTime,
}

impl Scrape {
    /// As Prometheus reads it.
    pub fn text(self) -> Result<String, Error> {
        let (mut text, mut registry) = (String::new(), Registry::default());
        registry.register_collector(Box::new(self));
        prometheus_text::encode(&mut text, &registry)?;
        Ok(text)
    }

    /// The servers that have answered.
    fn told(&self) -> impl Iterator<Item = (&str, &Info)> {
        let told = |node: &Answer<Info>| node.said.is_ok();
        let nodes = self.nodes.iter().filter(move |node| told(node));
        nodes.filter_map(|node| Some((node.address.as_str(), node.said.as_ref().ok()?)))
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let up = self.nodes.iter().map(|node| {
            let up = u64::from(node.said.is_ok());
            (vec![("node", node.address.as_str())], Number::Whole(up))
        });
        let help = "Whether the server answered, and has the module.";
        write(&mut encoder, "fairlock_up", help, up.collect())?;
        let replicas = self.told().map(|(node, info)| {
            let replica = u64::from(info.is_replica);
            (vec![("node", node)], Number::Whole(replica))
        });
        let help = "Whether the server is a replica, which knows of no waiters.";
        write(&mut encoder, "fairlock_replica", help, replicas.collect())?;
        for family in FAMILIES {
            let of_node = |(node, info)| samples(&family, node, info);
            let samples = self.told().flat_map(of_node).collect();
            write(&mut encoder, family.name, family.help, samples)?;
        }
        for family in HISTOGRAMS {
            self.histogram(&mut encoder, &family)?;
        }
        // A clock before 1970 is wrong.
        let at = self.at.duration_since(SystemTime::UNIX_EPOCH);
        let at = at.unwrap_or_default().as_secs_f64();
        let times = self.nodes.iter().map(|node| {
            let label = vec![("node", node.address.as_str())];
            (label, Number::Seconds(at))
        });
        let help = "When the server was asked, in seconds since 1970.";
        let name = "fairlock_metrics_timestamp_seconds";
        write(&mut encoder, name, help, times.collect())
    }
}

impl Scrape {
    /// A histogram of all servers that have it.
    fn histogram(&self, encoder: &mut DescriptorEncoder<'_>, family: &Family) -> Result<(), Error> {
        let told: Vec<_> = self
            .told()
            .filter_map(|(node, info)| Some((node, Buckets::read(family, info)?)))
            .collect();
        if told.is_empty() {
            return Ok(());
        }
        let kind = MetricType::Histogram;
        let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
        for (node, Buckets { sum, count, each }) in told {
            let labels = [("node", node)];
            let mut metric = metric.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(sum, count, &each, None)?;
        }
        Ok(())
    }
}

/// The value of a sample.
enum Number {
    Whole(u64),
    Seconds(f64),
}

/// What one server says of a metric.
fn samples<'a>(family: &Family, node: &'a str, info: &'a Info) -> Vec<(Labels<'a>, Number)> {
    let sample = |(field, value): (&'a str, u64)| {
        let mut labels = family.labels_of(field)?;
        labels.push(("node", node));
        let number = if field.ends_with("_usec") {
            Number::Seconds(seconds(value))
        } else {
            Number::Whole(value)
        };
        Some((labels, number))
    };
    info.numbers().filter_map(sample).collect()
}

/// A metric with its samples; nothing if there are none.
fn write(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Vec<(Labels<'_>, Number)>,
) -> Result<(), Error> {
    if samples.is_empty() {
        return Ok(());
    }
    // The encoder says `_total` itself.
    let counter = name.strip_suffix("_total");
    let kind = counter.map_or(MetricType::Gauge, |_| MetricType::Counter);
    let mut metric = encoder.encode_descriptor(counter.unwrap_or(name), help, None, kind)?;
    for (labels, number) in samples {
        let mut metric = metric.encode_family(&labels)?;
        let no_exemplar: Option<&Exemplar<NoLabelSet, u64>> = None;
        match number {
            Number::Whole(number) if counter.is_some() => {
                metric.encode_counter(&number, no_exemplar)?;
            }
            Number::Whole(number) => metric.encode_gauge(&number)?,
            Number::Seconds(number) => metric.encode_gauge(&number)?,
        }
    }
    Ok(())
}

/// How durations are distributed.
struct Buckets {
    sum: f64,
    count: u64,
    /// Upper bounds in seconds, and how many are in each bucket.
    each: Vec<(f64, u64)>,
}

impl Buckets {
    /// INFO has in each bucket also those of the buckets below. `None` if INFO has none of them.
    fn read(family: &Family, info: &Info) -> Option<Self> {
        let parts: Vec<_> = info
            .numbers()
            .filter_map(|(field, value)| Some((family.part_of(field)?, value)))
            .collect();
        let part = |name| parts.iter().find(|(part, _)| *part == name);
        let (&(_, count), &(_, sum)) = (part("count")?, part("sum")?);
        let bound = |(part, below): &(&str, u64)| {
            let bound: u64 = part.strip_prefix("le_")?.parse().ok()?;
            Some((seconds(bound), *below))
        };
        let mut each: Vec<(f64, u64)> = parts.iter().filter_map(bound).collect();
        each.sort_by(|one, other| one.0.total_cmp(&other.0));
        each.push((f64::INFINITY, count));
        let mut before = 0;
        for (_, number) in &mut each {
            let below = *number;
            *number = below.saturating_sub(before);
            before = below;
        }
        let sum = seconds(sum);
        Some(Self { sum, count, each })
    }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Trouble;

    const INFO: &str = "# Replication\r\nrole:master\r\n# fairlock\r\n\
        fairlock_acquisitions_immediate:7\r\nfairlock_acquisitions_handed_off:5\r\n\
        fairlock_wait_time_p99_usec:1500\r\nfairlock_scripts_lua_renew:18446744073709551615\r\n\
        fairlock_wait_time_usec_le_100:2\r\nfairlock_wait_time_usec_le_1000:3\r\n\
        fairlock_wait_time_usec_le_10000000:4\r\nfairlock_wait_time_usec_count:5\r\n\
        fairlock_wait_time_usec_sum:60002500\r\n";

    fn node(address: &str, info: Option<&str>) -> Answer<Info> {
        Answer {
            address: address.to_owned(),
            said: info
                .and_then(Info::read)
                .ok_or(Trouble::Gone(String::new())),
        }
    }

    #[test]
    fn a_family_has_its_samples_of_all_servers_together() {
        let nodes = vec![
            node("a:1", Some(INFO)),
            node(
                "b:2",
                Some("role:slave\r\nfairlock_acquisitions_immediate:1"),
            ),
            node("/c\"d\\e\nf", None),
        ];
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        let expected = r#"# HELP fairlock_up Whether the server answered, and has the module.
# TYPE fairlock_up gauge
fairlock_up{node="a:1"} 1
fairlock_up{node="b:2"} 1
fairlock_up{node="/c\"d\\e\nf"} 0
# HELP fairlock_replica Whether the server is a replica, which knows of no waiters.
# TYPE fairlock_replica gauge
fairlock_replica{node="a:1"} 0
fairlock_replica{node="b:2"} 1
# HELP fairlock_acquisitions_total Locks taken: without waiting, by a waiter, or once more by their holders.
# TYPE fairlock_acquisitions_total counter
fairlock_acquisitions_total{way="immediate",node="a:1"} 7
fairlock_acquisitions_total{way="handed_off",node="a:1"} 5
fairlock_acquisitions_total{way="immediate",node="b:2"} 1
# HELP fairlock_wait_percentile_seconds Percentiles of the time that waiters waited for their lock, since the module was loaded.
# TYPE fairlock_wait_percentile_seconds gauge
fairlock_wait_percentile_seconds{percentile="99",node="a:1"} 0.0015
# HELP fairlock_scripts_total Redisson's scripts: intercepted, that is run natively, or left to Lua.
# TYPE fairlock_scripts_total counter
fairlock_scripts_total{how="lua",kind="renew",node="a:1"} 18446744073709551615
# HELP fairlock_wait_seconds How long the waiters waited that got their lock.
# TYPE fairlock_wait_seconds histogram
fairlock_wait_seconds_bucket{node="a:1",le="0.0001"} 2
"#;
        let text = Scrape { nodes, at }.text().expect("text");
        assert!(text.starts_with(expected), "{text}");
        for line in [
            r#"fairlock_wait_seconds_bucket{node="a:1",le="10"} 4"#,
            r#"fairlock_wait_seconds_bucket{node="a:1",le="+Inf"} 5"#,
            r#"fairlock_wait_seconds_sum{node="a:1"} 60.0025"#,
            r#"fairlock_wait_seconds_count{node="a:1"} 5"#,
            r#"fairlock_metrics_timestamp_seconds{node="b:2"} 1.5"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
