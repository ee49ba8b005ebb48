//! The metrics of all servers, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use crate::server::{Answer, Info};

use super::families::{help, is_gauge, metric};

/// Names and values; the last one is the server.
type Labels<'a> = Vec<(&'a str, &'a str)>;
type Samples<'a> = Vec<(Labels<'a>, u64)>;

/// What all servers said at one time.
#[derive(Debug)]
pub struct Scrape(pub Vec<Answer<Info>>);

impl Scrape {
    /// As Prometheus reads it.
    pub fn text(self) -> Result<String, Error> {
        let (mut text, mut registry) = (String::new(), Registry::default());
        registry.register_collector(Box::new(self));
        prometheus_text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut metrics: BTreeMap<&str, Samples<'_>> = BTreeMap::new();
        for Answer { address, said } in &self.0 {
            let node = ("node", address.as_str());
            let mut samples = vec![("up", Vec::new(), u64::from(said.is_ok()))];
            if let Ok(info) = said {
                samples.push(("replica", Vec::new(), u64::from(info.is_replica)));
                samples.extend(info.fields.iter().map(|(field, value)| {
                    let (metric, labels) = metric(field);
                    (metric, labels, *value)
                }));
            }
            for (metric, mut labels, value) in samples {
                labels.push(node);
                metrics.entry(metric).or_default().push((labels, value));
            }
        }
        for (metric, samples) in metrics {
            // A newer server may have more fields.
            if let Some(help) = help(metric) {
                write(&mut encoder, metric, help, &samples)?;
            }
        }
        Ok(())
    }
}

/// A metric with its samples.
fn write(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &str,
    help: &str,
    samples: &Samples<'_>,
) -> Result<(), Error> {
    let is_seconds = metric.ends_with("_seconds");
    let kind = match is_gauge(metric) {
        true => MetricType::Gauge,
        false if is_seconds => MetricType::Histogram,
        false => MetricType::Counter,
    };
    let name = format!("fairlock_{metric}");
    let mut family = encoder.encode_descriptor(&name, help, None, kind)?;
    if kind == MetricType::Histogram {
        for samples in samples.chunk_by(|(one, _), (other, _)| one.last() == other.last()) {
            let (sum, count, buckets) = histogram(samples);
            let node = samples.first().and_then(|(all, _)| all.last().copied());
            let node = Labels::from_iter(node);
            let mut metric = family.encode_family(&node)?;
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        return Ok(());
    }
    for (labels, value) in samples {
        let mut metric = family.encode_family(labels)?;
        let no_exemplar: Option<&Exemplar<NoLabelSet, u64>> = None;
        match kind {
            MetricType::Counter => metric.encode_counter(value, no_exemplar)?,
            _ if is_seconds => metric.encode_gauge(&seconds(*value))?,
            _ => metric.encode_gauge(value)?,
        }
    }
    Ok(())
}

/// Of one server: the sum, how many there are, and how many up to each bound in seconds. INFO has the lowest bound first,
/// and in each bucket also those of the buckets below.
fn histogram(samples: &[(Labels<'_>, u64)]) -> (f64, u64, Vec<(f64, u64)>) {
    let (mut sum, mut count, mut buckets, mut below) = (0, 0, Vec::new(), 0);
    for (labels, value) in samples {
        match labels.first() {
            Some((_, "sum")) => sum = *value,
            Some((_, "count")) => count = *value,
            Some((_, bound)) => {
                let bound = bound
                    .strip_prefix("le_")
                    .and_then(|bound| bound.parse().ok());
                let own = value.saturating_sub(below);
                buckets.extend(bound.map(|bound| (seconds(bound), own)));
                below = *value;
            }
            None => (),
        }
    }
    (seconds(sum), count, buckets)
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}
