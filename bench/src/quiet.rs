//! Whether other work runs on the machine: figures measured beside it mean little.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Cores' worth of other work that is too much.
pub const MOST: f64 = 0.1;

/// How long to look. Work that comes and goes within a scene is not seen.
const LOOK: Duration = Duration::from_secs(1);
/// How many looks a process that is just ending may take to be gone.
const LOOKS: usize = 20;

/// The unit of times in /proc (proc(5)).
const TICKS_A_SECOND: f64 = 100.0;

/// How many cores other work takes while the benchmarks pause: the least of some looks, or the first that is small
/// enough.
pub fn other_work() -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..LOOKS {
        least = least.min(look()?);
        if least <= MOST {
            break;
        }
    }
    Ok(least)
}

fn look() -> Result<f64> {
    let (before, start) = (busy()?, Instant::now());
    std::thread::sleep(LOOK);
    Ok((busy()? - before) / start.elapsed().as_secs_f64())
}

/// Seconds that all cores have been busy so far, or that a hypervisor has taken from them.
fn busy() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    busy_in(&stat).context("the first line of /proc/stat")
}

fn busy_in(stat: &str) -> Option<f64> {
    let times = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Result<Vec<f64>, _> = times.split_whitespace().map(str::parse).collect();
    // The time of guests is counted among the user's.
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = times.ok()?[..] else {
        return None;
    };
    Some((user + nice + system + irq + softirq + steal) / TICKS_A_SECOND)
}
