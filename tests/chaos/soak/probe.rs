//! What is measured, row by row, and when it counts as flat.

use std::fs;

use fairlock_testing::Server;

/// Memory may be this much more at the end than at the start, in percent and besides in MB: the server's own buffers
/// and the allocator's pages come and go.
const MORE_PERCENT: f64 = 5.0;
const MORE_MB: f64 = 2.0;
/// Clients come and go: descriptors.
const MORE_FDS: f64 = 4.0;

/// What a server has at one time.
#[derive(Debug)]
pub struct Row {
    used_mb: f64,
    rss_mb: f64,
    fds: f64,
    /// Since it was started.
    hand_offs: f64,
}

impl Row {
    pub fn of(server: &Server) -> Self {
        let figure = |section: &str, field: &str| -> f64 {
            let figure = server.info(section, field);
            figure.parse().expect("a number")
        };
        let fds = fs::read_dir(format!("/proc/{}/fd", server.pid()));
        let fds = fds.expect("the server's descriptors").count();
        Self {
            used_mb: figure("memory", "used_memory") / 1e6,
            rss_mb: figure("memory", "used_memory_rss") / 1e6,
            fds: u32::try_from(fds).expect("not that many").into(),
            hand_offs: figure("fairlock", "fairlock_acquisitions_handed_off"),
        }
    }
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
    let busy = rows
        .windows(2)
        .filter(|pair| pair[0].hand_offs < pair[1].hand_offs);
    let busy = busy.count();
    assert!(
        busy * 2 > rows.len(),
        "hand-offs took place in {busy} rows only"
    );
}
