//! Which field of `INFO fairlock` becomes which metric.

/// Whether a metric only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until the module is loaded anew.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// Label names and values that tell the samples of a family apart.
pub type Labels = &'static [(&'static str, &'static str)];

/// A metric, of one sample or more.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// As Prometheus calls it.
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// A line for people.
    pub help: &'static str,
    /// The fields of INFO, without their prefix, and the labels of their samples.
    pub fields: &'static [(&'static str, Labels)],
}

const fn counter(
    name: &'static str,
    help: &'static str,
    fields: &'static [(&'static str, Labels)],
) -> Family {
    Family {
        name,
        kind: Kind::Counter,
        help,
        fields,
    }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    fields: &'static [(&'static str, Labels)],
) -> Family {
    Family {
        name,
        kind: Kind::Gauge,
        help,
        fields,
    }
}

/// How durations are distributed.
#[derive(Clone, Copy, Debug)]
pub struct Histogram {
    /// As Prometheus calls it, without `_bucket`, `_sum` and `_count`.
    pub name: &'static str,
    /// A line for people.
    pub help: &'static str,
    /// What the fields of INFO begin with, without their prefix: the rest is `le_` and a bound in
    /// microseconds, `sum`, or `count`.
    pub fields: &'static str,
}

/// Histograms: they can be added up over servers, and taken over any span of time.
pub const HISTOGRAMS: &[Histogram] = &[
    Histogram {
        name: "fairlock_wait_seconds",
        help: "How long the waiters waited that got their lock.",
        fields: "wait_time_usec_",
    },
    Histogram {
        name: "fairlock_hold_seconds",
        help: "How long locks were held.",
        fields: "hold_time_usec_",
    },
];

/// All other metrics. Durations, of fields whose names end in `_usec`, are in seconds.
pub const FAMILIES: &[Family] = &[
    counter(
        "fairlock_acquisitions_total",
        "Locks taken: without waiting, by a waiter, or once more by their holders.",
        &[
            ("acquisitions_immediate", &[("way", "immediate")]),
            ("acquisitions_handed_off", &[("way", "handed_off")]),
            ("acquisitions_reentrant", &[("way", "reentrant")]),
        ],
    ),
    counter(
        "fairlock_releases_total",
        "Locks freed by RELEASE, BREAK, or a session's end.",
        &[("releases", &[])],
    ),
    counter(
        "fairlock_timeouts_total",
        "Blocked waiters whose WAIT was over.",
        &[("timeouts", &[])],
    ),
    counter(
        "fairlock_cancels_total",
        "Waiters taken out by CANCEL.",
        &[("cancels", &[])],
    ),
    counter(
        "fairlock_disconnects_total",
        "Blocked waiters whose connection closed.",
        &[("disconnects", &[])],
    ),
    counter(
        "fairlock_lease_ends_total",
        "Locks whose lease ran out: their holders died or were too slow.",
        &[("lease_ends", &[])],
    ),
    counter(
        "fairlock_reaped_waiters_total",
        "Polling waiters dropped as dead.",
        &[("reaped_waiters", &[])],
    ),
    counter(
        "fairlock_take_overs_total",
        "Blocked waiters whose place a second connection took.",
        &[("take_overs", &[])],
    ),
    gauge(
        "fairlock_blocked_clients",
        "Clients blocked in ACQUIRE now.",
        &[("blocked_clients", &[])],
    ),
    gauge(
        "fairlock_session_locks",
        "Locks bound to a connection now.",
        &[("session_locks", &[])],
    ),
    gauge(
        "fairlock_locks_with_waiters_or_session",
        "Locks that the module looks after now.",
        &[("locks_with_waiters_or_session", &[])],
    ),
    // Not labels named quantile: those belong to summaries, which need a sum besides.
    gauge(
        "fairlock_wait_percentile_seconds",
        "Percentiles of the time that waiters waited for their lock, since the module was loaded.",
        &[
            ("wait_time_p50_usec", &[("percentile", "50")]),
            ("wait_time_p99_usec", &[("percentile", "99")]),
            ("wait_time_max_usec", &[("percentile", "100")]),
        ],
    ),
    gauge(
        "fairlock_hold_percentile_seconds",
        "Percentiles of the time that locks were held, since the module was loaded.",
        &[
            ("hold_time_p50_usec", &[("percentile", "50")]),
            ("hold_time_p99_usec", &[("percentile", "99")]),
            ("hold_time_max_usec", &[("percentile", "100")]),
        ],
    ),
    counter(
        "fairlock_scripts_total",
        "Redisson's scripts: intercepted, that is run natively, or left to Lua.",
        &[
            (
                "scripts_intercepted_try_lock",
                &[("how", "intercepted"), ("kind", "try_lock")],
            ),
            (
                "scripts_intercepted_lock",
                &[("how", "intercepted"), ("kind", "lock")],
            ),
            (
                "scripts_intercepted_unlock",
                &[("how", "intercepted"), ("kind", "unlock")],
            ),
            (
                "scripts_intercepted_force_unlock",
                &[("how", "intercepted"), ("kind", "force_unlock")],
            ),
            (
                "scripts_intercepted_leave",
                &[("how", "intercepted"), ("kind", "leave")],
            ),
            (
                "scripts_intercepted_renew",
                &[("how", "intercepted"), ("kind", "renew")],
            ),
            (
                "scripts_lua_try_lock",
                &[("how", "lua"), ("kind", "try_lock")],
            ),
            ("scripts_lua_lock", &[("how", "lua"), ("kind", "lock")]),
            ("scripts_lua_unlock", &[("how", "lua"), ("kind", "unlock")]),
            (
                "scripts_lua_force_unlock",
                &[("how", "lua"), ("kind", "force_unlock")],
            ),
            ("scripts_lua_leave", &[("how", "lua"), ("kind", "leave")]),
            ("scripts_lua_renew", &[("how", "lua"), ("kind", "renew")]),
        ],
    ),
];
