//! `INFO fairlock`.

use std::collections::BTreeMap;

use fairlock_testing::{Server, wait_until};

fn stats(server: &Server) -> BTreeMap<String, i64> {
    let info = server.connect().text("INFO fairlock");
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    // Durations counted by their bounds have tests of their own, in `durations`.
    let numbers = pairs.filter(|(name, _)| !name.contains("_usec_"));
    numbers
        .map(|(name, number)| {
            let name = name.trim_start_matches("fairlock_").to_owned();
            (name, number.parse().expect("a plain number"))
        })
        .collect()
}

/// The changes by some steps, as `name +n`, without durations.
#[track_caller]
fn counts(server: &Server, steps: impl FnOnce()) -> Vec<String> {
    let before = stats(server);
    steps();
    let after = stats(server);
    let changes = after
        .iter()
        .filter(|(name, _)| !name.ends_with("_usec"))
        .map(|(name, count)| (name, count - before.get(name).unwrap_or(&0)));
    changes
        .filter(|(_, change)| *change != 0)
        .map(|(name, change)| format!("{name} {change:+}"))
        .collect()
}

#[test]
fn the_section_is_plain_numbers() {
    let server = Server::start();
    let info = server.connect().text("INFO fairlock");
    assert!(info.starts_with("# fairlock\n"), "{info}");
    let names: Vec<String> = stats(&server).into_keys().collect();
    let expected = [
        "acquisitions_handed_off",
        "acquisitions_immediate",
        "acquisitions_reentrant",
        "blocked_clients",
        "cancels",
        "disconnects",
        "hold_time_max_usec",
        "hold_time_p50_usec",
        "hold_time_p99_usec",
        "lease_ends",
        "locks_with_waiters_or_session",
        "reaped_waiters",
        "releases",
        "scripts_intercepted_force_unlock",
        "scripts_intercepted_leave",
        "scripts_intercepted_lock",
        "scripts_intercepted_renew",
        "scripts_intercepted_try_lock",
        "scripts_intercepted_unlock",
        "scripts_lua_force_unlock",
        "scripts_lua_leave",
        "scripts_lua_lock",
        "scripts_lua_renew",
        "scripts_lua_try_lock",
        "scripts_lua_unlock",
        "session_locks",
        "take_overs",
        "timeouts",
        "wait_time_max_usec",
        "wait_time_p50_usec",
        "wait_time_p99_usec",
    ];
    assert_eq!(names, expected);
    assert!(stats(&server).values().all(|number| *number == 0));
    // It is one of the sections that modules add, not of those that INFO shows unasked.
    let mut client = server.connect();
    assert!(client.text("INFO everything").contains("# fairlock\n"));
    assert!(!client.text("INFO").contains("# fairlock\n"));
}

#[test]
fn acquisitions_and_releases_are_counted() {
    let (server, mut client) = Server::connected();
    let immediate = counts(&server, || {
        client.int("FAIRLOCK.ACQUIRE k a");
    });
    assert_eq!(immediate, ["acquisitions_immediate +1"]);
    let reentrant = counts(&server, || {
        client.int("FAIRLOCK.ACQUIRE k a");
        client.int("FAIRLOCK.ACQUIRE k a ONCE");
    });
    assert_eq!(reentrant, ["acquisitions_reentrant +2"]);
    let in_vain = counts(&server, || {
        client.run("FAIRLOCK.ACQUIRE k b NOWAIT");
        client.run("FAIRLOCK.RELEASE k b");
        // One hold remains.
        client.run("FAIRLOCK.RELEASE k a");
    });
    assert_eq!(in_vain, [""; 0]);
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    let handed_off = counts(&server, || {
        client.int("FAIRLOCK.RELEASE k a");
        waiter.int();
    });
    let expected = [
        "acquisitions_handed_off +1",
        "blocked_clients -1",
        "locks_with_waiters_or_session -1",
        "releases +1",
    ];
    assert_eq!(handed_off, expected);
}

#[test]
fn a_polling_waiter_that_takes_the_lock_was_handed_it() {
    let (server, mut client) = Server::connected_with(&["--fairlock.turn", "60000"]);
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    client.int("FAIRLOCK.RELEASE k a");
    let taken = counts(&server, || {
        client.int("FAIRLOCK.ACQUIRE k b ENQUEUE");
    });
    let expected = [
        "acquisitions_handed_off +1",
        "locks_with_waiters_or_session -1",
    ];
    assert_eq!(taken, expected);
}

#[test]
fn waits_that_end_without_the_lock_are_counted_by_their_end() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
    let timed = counts(&server, || {
        let waiter = server.block("FAIRLOCK.ACQUIRE k b WAIT 50");
        assert_eq!(waiter.reply(), "(nil)");
        let waiter = server.block("FAIRLOCK.ACQUIRE k b");
        client.run(&format!("CLIENT UNBLOCK {}", waiter.id));
        assert_eq!(waiter.reply(), "(nil)");
    });
    assert_eq!(timed, ["timeouts +2"]);
    let cancelled = counts(&server, || {
        let waiter = server.block("FAIRLOCK.ACQUIRE k b");
        client.int("FAIRLOCK.CANCEL k b");
        assert_eq!(waiter.reply(), "(nil)");
    });
    assert_eq!(cancelled, ["cancels +1"]);
    let gone = counts(&server, || {
        server.block("FAIRLOCK.ACQUIRE k b").disconnect();
        wait_until("b has left", || {
            client.int("LLEN redisson_lock_queue:{k}") == 1
        });
    });
    assert_eq!(gone, ["disconnects +1"]);
    let taken_over = counts(&server, || {
        let first = server.block("FAIRLOCK.ACQUIRE k b");
        let second = server.block("FAIRLOCK.ACQUIRE k b WAIT 50");
        assert!(first.reply().starts_with("(error) TAKENOVER "));
        assert_eq!(second.reply(), "(nil)");
    });
    assert_eq!(taken_over, ["take_overs +1", "timeouts +1"]);
}

#[test]
fn lease_ends_and_reaped_waiters_are_counted() {
    let (server, mut client) = Server::connected_with(&["--fairlock.turn", "50"]);
    let ended = counts(&server, || {
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        client.run("FAIRLOCK.ACQUIRE k dead ENQUEUE");
        let waiter = server.block("FAIRLOCK.ACQUIRE k b");
        // Only when all wait for its end.
        client.int("FAIRLOCK.RENEW k a LEASE 50");
        waiter.int();
    });
    let expected = [
        "acquisitions_handed_off +1",
        "acquisitions_immediate +1",
        "lease_ends +1",
        "reaped_waiters +1",
    ];
    assert_eq!(ended, expected);
}

#[test]
fn a_lease_that_ends_without_waiters_is_counted() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 20");
    wait_until("it is counted", || stats(&server)["lease_ends"] == 1);
    // Another key's expiry is not a lease.
    client.run("SET other x PX 1");
    wait_until("it has expired", || client.run("EXISTS other") == "0");
    assert_eq!(stats(&server)["lease_ends"], 1);
}

#[test]
fn gauges_show_who_waits_and_holds_now() {
    let (server, mut client) = Server::connected();
    let mut holder = server.connect();
    holder.int("FAIRLOCK.ACQUIRE k a SESSION");
    holder.int("FAIRLOCK.ACQUIRE l a SESSION");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    client.run("FAIRLOCK.ACQUIRE l p ENQUEUE");
    let now = stats(&server);
    assert_eq!(now["session_locks"], 2);
    assert_eq!(now["blocked_clients"], 1);
    assert_eq!(now["locks_with_waiters_or_session"], 2);
    drop(holder);
    waiter.int();
    client.int("FAIRLOCK.RELEASE k b");
    client.int("FAIRLOCK.ACQUIRE l p NOWAIT");
    let now = stats(&server);
    assert_eq!(now["session_locks"], 0);
    assert_eq!(now["blocked_clients"], 0);
    assert_eq!(now["locks_with_waiters_or_session"], 0);
}

#[test]
fn wait_and_hold_times_are_measured() {
    let (server, mut client) = Server::connected();
    let first = server.connect().int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    // Since the waiter began to wait, not only since the holder began to hold.
    let left = client.int("PTTL k");
    wait_until("some time has passed", || client.int("PTTL k") < left - 200);
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > first);
    let times = stats(&server);
    for name in ["wait_time_p50_usec", "wait_time_max_usec"] {
        assert!(times[name] > 10_000, "{name}: {times:?}");
    }
    for name in ["hold_time_p50_usec", "hold_time_max_usec"] {
        assert!(times[name] >= 195_000, "{name}: {times:?}");
    }
    assert!(times["hold_time_p50_usec"] <= times["hold_time_p99_usec"]);
    assert!(times["hold_time_p99_usec"] <= times["hold_time_max_usec"]);
    // A hundred short ones: the median is theirs, the longest stays.
    for _ in 0..100 {
        client.int("FAIRLOCK.ACQUIRE other a");
        client.int("FAIRLOCK.RELEASE other a");
    }
    let after = stats(&server);
    assert!(after["hold_time_p50_usec"] < times["hold_time_p50_usec"]);
    assert!(after["hold_time_max_usec"] >= times["hold_time_max_usec"]);
}
