//! What is measured, row by row, and when it counts as flat.

use std::fmt;
use std::fs;
use std::time::Duration;

use fairlock_testing::Server;
use hdrhistogram::Histogram;

use crate::history::{Answer, Call, History, Request, Way};

/// Memory may be this much more at the end than at the start, in percent and besides in MB: the
/// server's own buffers and the allocator's pages come and go.
pub const MORE_PERCENT: f64 = 5.0;
pub const MORE_MB: f64 = 2.0;
/// Clients come and go: descriptors.
pub const MORE_FDS: usize = 4;

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub second: u64,
    pub used_mb: f64,
    pub rss_mb: f64,
    pub fds: usize,
    pub hand_offs: f64,
    pub acquisitions: f64,
    /// From a blocking ACQUIRE to its token, milliseconds.
    pub p50: f64,
    pub p99: f64,
}

impl Row {
    pub const TITLES: &str =
        "second  used MB   RSS MB   fds  hand-offs/s  acquired/s  wait p50 ms  wait p99 ms";
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:6}  {:7.2}  {:7.2}  {:4}  {:11.1}  {:10.1}  {:11.2}  {:11.2}",
            self.second,
            self.used_mb,
            self.rss_mb,
            self.fds,
            self.hand_offs,
            self.acquisitions,
            self.p50,
            self.p99
        )
    }
}

/// One figure of a row.
pub type Figure = fn(&Row) -> f64;

/// Reads the server's figures.
pub struct Probe<'s> {
    server: &'s Server,
    last: (Duration, f64),
}

impl<'s> Probe<'s> {
    pub fn new(server: &'s Server) -> Self {
        Self {
            server,
            last: (Duration::ZERO, 0.0),
        }
    }

    /// What has changed since the last row, and what there is now.
    pub fn row(&mut self, at: Duration, history: &History) -> Row {
        let handed_off = self.figure("fairlock", "fairlock_acquisitions_handed_off");
        let seconds = at.saturating_sub(self.last.0).as_secs_f64();
        let hand_offs = (handed_off - self.last.1) / seconds;
        self.last = (at, handed_off);
        let mut waits = Histogram::<u64>::new(3).expect("a histogram");
        let waited = history.calls.iter().filter_map(wait);
        waited.for_each(|wait| waits.record(wait).expect("room for it"));
        let granted = history.calls.iter().filter(|call| is_granted(call)).count();
        let fds = fs::read_dir(format!("/proc/{}/fd", self.server.pid()));
        Row {
            second: at.as_secs(),
            used_mb: self.figure("memory", "used_memory") / 1e6,
            rss_mb: self.figure("memory", "used_memory_rss") / 1e6,
            fds: fds.expect("the server's descriptors").count(),
            hand_offs,
            acquisitions: as_float(granted as u64) / seconds,
            p50: as_float(waits.value_at_quantile(0.5)) / 1000.0,
            p99: as_float(waits.value_at_quantile(0.99)) / 1000.0,
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
pub fn as_float(number: u64) -> f64 {
    number as f64
}

/// The medians of the second tenth and of the last: the first tenth is for warming up.
pub fn ends(rows: &[Row], of: impl Fn(&Row) -> f64) -> [f64; 2] {
    let tenth = (rows.len() / 10).max(1);
    let median = |rows: &[Row]| {
        let mut values: Vec<f64> = rows.iter().map(&of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let start = tenth.min(rows.len() - 1);
    let second = (start + tenth).min(rows.len());
    [
        median(&rows[start..second]),
        median(&rows[rows.len() - tenth..]),
    ]
}

/// Fails unless memory and descriptors at the end are what they were at the start.
pub fn is_flat(rows: &[Row]) {
    let measures: [(&str, Figure); 2] = [
        ("used memory", |row| row.used_mb),
        ("RSS", |row| row.rss_mb),
    ];
    for (name, of) in measures {
        let [start, end] = ends(rows, of);
        let most = start * (1.0 + MORE_PERCENT / 100.0) + MORE_MB;
        assert!(
            end <= most,
            "{name} grew from {start:.2} MB to {end:.2} MB, at most {most:.2}"
        );
    }
    let [start, end] = ends(rows, |row| as_float(row.fds as u64));
    let most = start + as_float(MORE_FDS as u64);
    assert!(
        end <= most,
        "descriptors grew from {start} to {end}, at most {most}"
    );
    let busy = rows.iter().filter(|row| row.hand_offs > 0.0).count();
    assert!(
        busy * 2 > rows.len(),
        "hand-offs took place in {busy} rows only"
    );
}
