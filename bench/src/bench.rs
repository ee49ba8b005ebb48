//! What all scenes share: how long they measure, their figures, where they report.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::crowd::Crowd;
use crate::plot::Line;
use crate::report::Report;
use crate::server::Server;

/// A run of the benchmarks.
pub struct Bench {
    /// Shorter and smaller, for daily use.
    pub quick: bool,
    /// How often each contestant is measured.
    pub rounds: usize,
    /// How long each measurement takes.
    pub window: Duration,
    pub report: Report,
    /// The lines of the picture: hand-offs a second by the number of clients.
    pub lines: Vec<Line>,
}

impl Bench {
    /// A run that has not begun.
    pub fn new(quick: bool) -> Self {
        let (rounds, window) = if quick { (1, 200) } else { (3, 1000) };
        Self {
            quick,
            rounds,
            window: Duration::from_millis(window),
            report: Report::default(),
            lines: Vec::new(),
        }
    }

    /// Lets a crowd work for a time, or a little longer if it is slow, and measures it.
    pub fn measure(&self, server: &Server, crowd: &mut Crowd) -> Result<Sample> {
        /// The fewest units that make a figure.
        const FEWEST: u64 = 8;
        // What was interrupted before gets going again.
        crowd.run(self.window / 10)?;
        let (done, cpu, start) = (crowd.done(), server.process_cpu()?, Instant::now());
        crowd.run(self.window)?;
        crowd.run_while(Duration::from_secs(30), |crowd| {
            crowd.done() < done + FEWEST
        })?;
        let (cpu, elapsed) = (server.process_cpu()? - cpu, start.elapsed().as_secs_f64());
        let done = float(crowd.done() - done);
        Ok(Sample {
            rate: done / elapsed,
            cpu: cpu * 1e6 / done,
        })
    }
}

/// Far below 2^53.
#[allow(clippy::cast_precision_loss)]
pub fn float(number: u64) -> f64 {
    number as f64
}

/// What was done in some time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Units a second.
    pub rate: f64,
    /// Microseconds of the server for each.
    pub cpu: f64,
}

/// What was sampled in several rounds.
#[derive(Clone, Debug, Default)]
pub struct Contest {
    pub rate: Figure,
    pub cpu: Figure,
}

impl Contest {
    /// One round more.
    pub fn push(&mut self, sample: Sample) {
        self.rate.0.push(sample.rate);
        self.cpu.0.push(sample.cpu);
    }
}

/// One figure, measured several times.
#[derive(Clone, Debug, Default)]
pub struct Figure(pub Vec<f64>);

impl Figure {
    /// The middle one, the least and the greatest; not a number if there is none.
    pub fn spread(&self) -> [f64; 3] {
        let mut values = self.0.clone();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let [low, high] = [values.len().saturating_sub(1) / 2, values.len() / 2];
        let median = f64::midpoint(at(low), at(high));
        [median, at(0), at(values.len().saturating_sub(1))]
    }

    pub fn median(&self) -> f64 {
        self.spread()[0]
    }

    /// The median of the rounds' ratios.
    pub fn by(&self, other: &Self) -> f64 {
        let pairs = self.0.iter().zip(&other.0);
        Self(pairs.map(|(this, other)| this / other).collect()).median()
    }
}
