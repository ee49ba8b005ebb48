//! The metrics: which field of `INFO fairlock` becomes which.

/// What a metric is, in a line for people; its name is without `fairlock_`. `None` if there is none.
pub fn help(metric: &str) -> Option<&'static str> {
    Some(match metric {
        "up" => "Whether the server answered, and has the module.",
        "replica" => "Whether the server is a replica, which knows of no waiters.",
        "acquisitions" => "Locks taken: at once, by a waiter, or once more by their holders.",
        "releases" => "Locks freed by RELEASE, BREAK, or a session's end.",
        "timeouts" => "Blocked waiters whose WAIT was over.",
        "cancels" => "Waiters taken out by CANCEL.",
        "disconnects" => "Blocked waiters whose connection closed.",
        "lease_ends" => "Locks whose lease ran out: their holders died or were too slow.",
        "reaped_waiters" => "Polling waiters dropped as dead.",
        "take_overs" => "Blocked waiters whose place a second connection took.",
        "scripts" => "Redisson's scripts: intercepted, that is run natively, or left to Lua.",
        "blocked_clients" => "Clients blocked in ACQUIRE now.",
        "session_locks" => "Locks bound to a connection now.",
        "locks_with_waiters_or_session" => "Locks that the module looks after now.",
        "wait_percentile_seconds" => "How long waiters waited since the module was loaded.",
        "hold_percentile_seconds" => "How long locks were held since the module was loaded.",
        "wait_seconds" => "How long the waiters waited that got their lock.",
        "hold_seconds" => "How long locks were held.",
        _ => return None,
    })
}

/// Whether a metric goes up and down.
pub fn is_gauge(metric: &str) -> bool {
    metric.starts_with("locks_")
        || ["up", "replica", "_clients", "_locks", "_percentile_seconds"]
            .iter()
            .any(|end| metric.ends_with(end))
}

/// Of a field, without its prefix: the metric, and the labels of its sample, names and values. Of a histogram's field the
/// label `part` is `le_` and a bound in microseconds, `sum`, or `count`.
pub fn metric(field: &str) -> (&str, Vec<(&'static str, &str)>) {
    let timed = [
        ("wait_time_", "wait_seconds", "wait_percentile_seconds"),
        ("hold_time_", "hold_seconds", "hold_percentile_seconds"),
    ];
    for (start, histogram, percentiles) in timed {
        if let Some(rest) = field.strip_prefix(start) {
            if let Some(part) = rest.strip_prefix("usec_") {
                return (histogram, vec![("part", part)]);
            }
            // Not a label named quantile: that belongs to summaries, which need a sum besides.
            let percentile = rest.trim_end_matches("_usec").strip_prefix('p');
            return (
                percentiles,
                vec![("percentile", percentile.unwrap_or("100"))],
            );
        }
    }
    if let Some(way) = field.strip_prefix("acquisitions_") {
        return ("acquisitions", vec![("way", way)]);
    }
    let script = field.strip_prefix("scripts_");
    if let Some((how, kind)) = script.and_then(|rest| rest.split_once('_')) {
        return ("scripts", vec![("how", how), ("kind", kind)]);
    }
    (field, Vec::new())
}
