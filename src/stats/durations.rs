//! Durations, and what INFO shows of them: percentiles, and a histogram as Prometheus has it.

use hdrhistogram::Histogram;

use crate::server::info::Section;

/// Upper bounds of the histogram in INFO, in microseconds: from less than a hand-off takes to an hour.
const BOUNDS: [u64; 15] = [
    100,
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    600_000_000,
    3_600_000_000,
];

/// Durations in microseconds, to two digits.
pub struct Durations {
    histogram: Option<Histogram<u64>>,
    /// Of all of them, exactly.
    sum: u64,
}

impl Default for Durations {
    fn default() -> Self {
        const LONGEST_MEASURED: u64 = 1 << 52;
        let histogram = Histogram::new_with_bounds(1, LONGEST_MEASURED, 2).ok();
        Self { histogram, sum: 0 }
    }
}

impl Durations {
    pub fn record(&mut self, micros: u64) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(micros);
            self.sum = self.sum.wrapping_add(micros);
        }
    }

    /// Writes the percentiles, and a cumulative histogram as Prometheus has it, which can be summed over servers and
    /// compared over time.
    pub fn write(&self, section: &mut Section, name: &str) {
        let Some(histogram) = &self.histogram else {
            return;
        };
        for (part, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            let value = histogram.value_at_quantile(share);
            section.number(&format!("{name}_{part}_usec"), value);
        }
        for bound in BOUNDS {
            let count = histogram.count_between(0, bound);
            section.number(&format!("{name}_usec_le_{bound}"), count);
        }
        section.number(&format!("{name}_usec_le_inf"), histogram.len());
        section.number(&format!("{name}_usec_sum"), self.sum);
        section.number(&format!("{name}_usec_count"), histogram.len());
    }
}
