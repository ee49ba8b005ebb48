//! Figures that are measured several times, and their medians.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::crowd::{Crowd, Member};
use crate::server::Server;

/// One figure, measured several times.
#[derive(Clone, Debug, Default)]
pub struct Figure(Vec<f64>);

impl Figure {
    /// Measured once.
    pub fn of(value: f64) -> Self {
        Self(vec![value])
    }

    /// Measured once more.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut values = self.0.clone();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The middle one; not a number if there is none.
    pub fn median(&self) -> f64 {
        let values = self.sorted();
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let middle = values.len() / 2;
        if values.len() % 2 == 1 {
            at(middle)
        } else {
            f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
        }
    }

    /// The least and the greatest.
    pub fn range(&self) -> (f64, f64) {
        let values = self.sorted();
        let end = |value: Option<&f64>| value.copied().unwrap_or(f64::NAN);
        (end(values.first()), end(values.last()))
    }

    /// Divides each figure by the other one of the same round.
    pub fn by(&self, other: &Self) -> Self {
        let pairs = self.0.iter().zip(&other.0);
        Self(pairs.map(|(this, other)| this / other).collect())
    }
}

/// What a crowd did in some time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Units a second.
    pub rate: f64,
    /// Microseconds of the server for each: of its main thread where it has one.
    pub cpu: f64,
}

/// What was sampled in several rounds.
#[derive(Clone, Debug, Default)]
pub struct Contest {
    /// Units a second.
    pub rate: Figure,
    /// Microseconds of the server for each.
    pub cpu: Figure,
}

impl Contest {
    /// One round more.
    pub fn push(&mut self, sample: Sample) {
        self.rate.push(sample.rate);
        self.cpu.push(sample.cpu);
    }
}

/// Lets a crowd work for a time and measures it.
pub fn sample<M: Member>(
    server: &mut Server,
    crowd: &mut Crowd<M>,
    duration: Duration,
) -> Result<Sample> {
    // What was interrupted before gets going again.
    crowd.run(duration / 10)?;
    let (done, cpu, start) = (crowd.done(), server.cpu()?, Instant::now());
    crowd.run(duration)?;
    let elapsed = start.elapsed().as_secs_f64();
    let cpu = server.cpu()? - cpu;
    #[allow(clippy::cast_precision_loss)] // Far below 2^53.
    let done = (crowd.done() - done) as f64;
    Ok(Sample {
        rate: done / elapsed,
        cpu: cpu * 1e6 / done,
    })
}

/// The figures of hand-offs.
#[derive(Clone, Copy, Debug)]
pub struct HandOffs {
    /// Hand-offs a second.
    pub rate: f64,
    /// Microseconds of the server's process for each.
    pub cpu: f64,
    /// Commands or scripts that ask or release, for each.
    pub calls: f64,
    /// Wake-up messages that clients heard, for each.
    pub messages: f64,
}

/// The fewest hand-offs that make a figure.
const FEWEST: u64 = 8;

/// Lets a crowd hand a lock on for a time, or a little longer if hand-offs are slow.
pub fn hand_offs<M: Member>(
    server: &Server,
    crowd: &mut Crowd<M>,
    duration: Duration,
) -> Result<HandOffs> {
    // What was interrupted before gets going again.
    crowd.run(duration / 10)?;
    let (done, traffic) = (crowd.done(), crowd.traffic());
    let (cpu, start) = (server.process_cpu()?, Instant::now());
    crowd.run(duration)?;
    let enough = done + FEWEST;
    crowd.run_while(Duration::from_secs(30), |crowd| crowd.done() < enough)?;
    let (cpu, elapsed) = (server.process_cpu()? - cpu, start.elapsed().as_secs_f64());
    let after = crowd.traffic();
    #[allow(clippy::cast_precision_loss)] // Far below 2^53.
    let [done, calls, messages] = [
        crowd.done() - done,
        after.calls - traffic.calls,
        after.messages - traffic.messages,
    ]
    .map(|number| number as f64);
    Ok(HandOffs {
        rate: done / elapsed,
        cpu: cpu * 1e6 / done,
        calls: calls / done,
        messages: messages / done,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let figure = |values: &[f64]| Figure(values.to_vec()).median();
        assert!((figure(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((figure(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(figure(&[]).is_nan());
    }
}
