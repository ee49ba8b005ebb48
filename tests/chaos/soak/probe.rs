//! What is measured, row by row, and when it counts as flat.

use std::fmt;
use std::fs;
use std::time::Duration;

use fairlock_testing::Server;
use hdrhistogram::Histogram;

use crate::history::{Answer, Call, History, Request, Way};

/// Memory may be this much more at the end than at the start, in percent and besides in MB: the server's own buffers
/// and the allocator's pages come and go.
const MORE_PERCENT: f64 = 5.0;
const MORE_MB: f64 = 2.0;
/// Clients come and go: descriptors.
const MORE_FDS: f64 = 4.0;

/// One line of the table.
pub struct Row {
    second: u64,
    used_mb: f64,
    rss_mb: f64,
    fds: f64,
    hand_offs: f64,
    acquisitions: f64,
    /// From a blocking ACQUIRE to its token, milliseconds.
    p50: f64,
    p99: f64,
}

impl Row {
    pub const TITLES: &str =
        "second  used MB   RSS MB   fds  hand-offs/s  acquired/s  wait p50 ms  wait p99 ms";
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            second,
            used_mb,
            rss_mb,
            fds,
            hand_offs,
            acquisitions,
            p50,
            p99,
        } = self;
        write!(
            out,
            "{second:6}  {used_mb:7.2}  {rss_mb:7.2}  {fds:4}  {hand_offs:11.1}  "
        )?;
        write!(out, "{acquisitions:10.1}  {p50:11.2}  {p99:11.2}")
    }
}

/// Reads the server's figures.
pub struct Probe<'s> {
    server: &'s Server,
    last: (Duration, f64),
}

impl<'s> Probe<'s> {
    pub fn new(server: &'s Server) -> Self {
        let last = (Duration::ZERO, 0.0);
        Self { server, last }
    }

    /// What has changed since the last row, and what there is now.
    pub fn row(&mut self, at: Duration, history: &History) -> Row {
        let handed_off = self.figure("fairlock", "fairlock_acquisitions_handed_off");
        let seconds = at.saturating_sub(self.last.0).as_secs_f64();
        let hand_offs = (handed_off - self.last.1) / seconds;
        self.last = (at, handed_off);
        let mut waits = Histogram::<u64>::new(3).expect("a histogram");
        for wait in history.calls.iter().filter_map(wait) {
            waits.record(wait).expect("room for it");
        }
        let granted = history.calls.iter().filter(|call| is_granted(call)).count();
        let fds = fs::read_dir(format!("/proc/{}/fd", self.server.pid()));
        Row {
            second: at.as_secs(),
            used_mb: self.figure("memory", "used_memory") / 1e6,
            rss_mb: self.figure("memory", "used_memory_rss") / 1e6,
            fds: float(fds.expect("the server's descriptors").count() as u64),
            hand_offs,
            acquisitions: float(granted as u64) / seconds,
            p50: float(waits.value_at_quantile(0.5)) / 1000.0,
            p99: float(waits.value_at_quantile(0.99)) / 1000.0,
        }
    }

    fn figure(&self, section: &str, field: &str) -> f64 {
        self.server.info(section, field).parse().expect("a number")
    }
}

fn is_granted(call: &Call) -> bool {
    matches!(
        (call.request, &call.answer),
        (Request::Acquire { .. }, Answer::Granted(_))
    )
}

/// How long a blocking ACQUIRE took, microseconds.
fn wait(call: &Call) -> Option<u64> {
    let blocked = matches!(
        call.request,
        Request::Acquire {
            way: Way::Blocked,
            ..
        }
    );
    (blocked && is_granted(call)).then(|| call.answered - call.invoked)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}

/// Fails unless memory and descriptors at the end are what they were at the start: the medians of the second tenth and
/// of the last, for the first is for warming up.
pub fn is_flat(rows: &[Row]) {
    let tenth = (rows.len() / 10).max(1);
    let start = tenth.min(rows.len() - 1);
    let median = |rows: &[Row], of: fn(&Row) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let flat = |name: &str, of: fn(&Row) -> f64, percent: f64, more: f64| {
        let begin = median(&rows[start..(start + tenth).min(rows.len())], of);
        let end = median(&rows[rows.len() - tenth..], of);
        let most = begin * (1.0 + percent / 100.0) + more;
        assert!(
            end <= most,
            "{name} grew from {begin:.2} to {end:.2}, at most {most:.2}"
        );
    };
    flat("used MB", |row| row.used_mb, MORE_PERCENT, MORE_MB);
    flat("RSS MB", |row| row.rss_mb, MORE_PERCENT, MORE_MB);
    flat("descriptors", |row| row.fds, 0.0, MORE_FDS);
    let busy = rows.iter().filter(|row| row.hand_offs > 0.0).count();
    assert!(
        busy * 2 > rows.len(),
        "hand-offs took place in {busy} rows only"
    );
}
