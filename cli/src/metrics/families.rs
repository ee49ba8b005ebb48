//! Which field of `INFO fairlock` becomes which metric.

/// A metric, of one sample or more.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// As Prometheus calls it; a counter ends in `_total`.
    pub name: &'static str,
    /// A line for people.
    pub help: &'static str,
    /// What its fields of INFO begin with, without their prefix.
    field: &'static str,
    /// The labels that the rest of a field's name gives the values of.
    labels: &'static [&'static str],
}

const fn family(
    name: &'static str,
    field: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family {
        name,
        help,
        field,
        labels,
    }
}

/// Histograms: the rest of a field's name is `le_` and a bound in microseconds, `sum`, or `count`.
pub const HISTOGRAMS: [Family; 2] = [
    family(
        "fairlock_wait_seconds",
        "wait_time_usec_",
        &[],
        "How long the waiters waited that got their lock.",
    ),
    family(
        "fairlock_hold_seconds",
        "hold_time_usec_",
        &[],
        "How long locks were held.",
    ),
];

/// All other metrics. Durations, of fields whose names end in `_usec`, are in seconds.
pub const FAMILIES: [Family; 14] = [
    family(
        "fairlock_acquisitions_total",
        "acquisitions_",
        &["way"],
        "Locks taken: without waiting, by a waiter, or once more by their holders.",
    ),
    family(
        "fairlock_releases_total",
        "releases",
        &[],
        "Locks freed by RELEASE, BREAK, or a session's end.",
    ),
    family(
        "fairlock_timeouts_total",
        "timeouts",
        &[],
        "Blocked waiters whose WAIT was over.",
    ),
    family(
        "fairlock_cancels_total",
        "cancels",
        &[],
        "Waiters taken out by CANCEL.",
    ),
    family(
        "fairlock_disconnects_total",
        "disconnects",
        &[],
        "Blocked waiters whose connection closed.",
    ),
    family(
        "fairlock_lease_ends_total",
        "lease_ends",
        &[],
        "Locks whose lease ran out: their holders died or were too slow.",
    ),
    family(
        "fairlock_reaped_waiters_total",
        "reaped_waiters",
        &[],
        "Polling waiters dropped as dead.",
    ),
    family(
        "fairlock_take_overs_total",
        "take_overs",
        &[],
        "Blocked waiters whose place a second connection took.",
    ),
    family(
        "fairlock_blocked_clients",
        "blocked_clients",
        &[],
        "Clients blocked in ACQUIRE now.",
    ),
    family(
        "fairlock_session_locks",
        "session_locks",
        &[],
        "Locks bound to a connection now.",
    ),
    family(
        "fairlock_locks_with_waiters_or_session",
        "locks_with_waiters_or_session",
        &[],
        "Locks that the module looks after now.",
    ),
    // Not labels named quantile: those belong to summaries, which need a sum besides.
    family(
        "fairlock_wait_percentile_seconds",
        "wait_time_",
        &["percentile"],
        "Percentiles of the time that waiters waited for their lock, since the module was loaded.",
    ),
    family(
        "fairlock_hold_percentile_seconds",
        "hold_time_",
        &["percentile"],
        "Percentiles of the time that locks were held, since the module was loaded.",
    ),
    family(
        "fairlock_scripts_total",
        "scripts_",
        &["how", "kind"],
        "Redisson's scripts: intercepted, that is run natively, or left to Lua.",
    ),
];

impl Family {
    /// The labels of a field's sample, names and values; `None` if the field is not one of this metric.
    #[must_use]
    pub fn labels_of<'a>(&self, field: &'a str) -> Option<Vec<(&'static str, &'a str)>> {
        let rest = field.strip_prefix(self.field)?;
        match *self.labels {
            [] => rest.is_empty().then(Vec::new),
            ["percentile"] => {
                let rest = rest.strip_suffix("_usec")?;
                let percentile = rest.strip_prefix('p').unwrap_or("100");
                Some(vec![("percentile", percentile)])
            }
            [one] => Some(vec![(one, rest)]),
            [one, other, ..] => {
                let (first, second) = rest.split_once('_')?;
                Some(vec![(one, first), (other, second)])
            }
        }
    }

    /// Of a histogram's field, what follows its beginning.
    #[must_use]
    pub fn part_of<'a>(&self, field: &'a str) -> Option<&'a str> {
        field.strip_prefix(self.field)
    }
}
