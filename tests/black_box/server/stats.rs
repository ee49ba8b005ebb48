//! `INFO fairlock`, and the module's own key events: what is counted and what is announced of each step.

use std::collections::BTreeMap;

use fairlock_testing::{Server, wait_until};

use super::events::{announcing, own_events};

/// The fields.
pub fn stats(server: &Server) -> BTreeMap<String, i64> {
    let info = server.connect().run("INFO fairlock");
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs
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
        .filter(|(name, _)| !name.contains("_usec"))
        .map(|(name, count)| (name, count - before.get(name).unwrap_or(&0)));
    changes
        .filter(|(_, change)| *change != 0)
        .map(|(name, change)| format!("{name} {change:+}"))
        .collect()
}

#[test]
fn the_section_is_plain_numbers() {
    let server = Server::start();
    server
        .connect()
        .assert_start("INFO fairlock", "# fairlock\n");
    // Their names: `documents::pages`.
    assert!(stats(&server).values().all(|number| *number == 0));
    // It is one of the sections that modules add, not of those that INFO shows unasked.
    let mut client = server.connect();
    client.assert_has("INFO everything", "# fairlock\n");
    assert!(!client.run("INFO").contains("# fairlock\n"));
}

/// The module's own events during some steps, and behind a semicolon what was counted.
#[track_caller]
fn told(server: &Server, steps: impl FnOnce()) -> String {
    let mut events = Vec::new();
    let counts = counts(server, || events = own_events(server, steps));
    format!("{}; {}", events.join(", "), counts.join(", "))
}

/// Commands, one a line; behind an arrow what is told of them, if anything is. The first release leaves a hold.
const STEPS: &str = "
    ACQUIRE k a -> acquire k; acquisitions_immediate +1
    ACQUIRE k a -> ; acquisitions_reentrant +1
    ACQUIRE k a ONCE -> ; acquisitions_reentrant +1
    ACQUIRE k c NOWAIT
    ACQUIRE k b ENQUEUE -> enqueue k; locks_with_waiters_or_session +1
    ACQUIRE k b ENQUEUE
    CANCEL k c
    RELEASE k b
    RELEASE k a TOKEN 1
    RELEASE k a
    RENEW k a
    RENEW k c
    BREAK other
    QUEUE k
    HOLDERS k
    INFO k
    LOCKS
    ACQUIRE k
    RELEASE k a -> release k; releases +1
    ACQUIRE k b ENQUEUE -> acquire k; acquisitions_handed_off +1, locks_with_waiters_or_session -1
    ACQUIRE k c ENQUEUE -> enqueue k; locks_with_waiters_or_session +1
    CANCEL k c -> cancel k; cancels +1, locks_with_waiters_or_session -1
    BREAK k -> release k; releases +1";

#[test]
fn each_step_is_counted_and_announced_and_what_did_not_happen_is_not() {
    let server = announcing(&["--fairlock.turn", "60000"]);
    let mut client = server.connect();
    for case in STEPS.trim().lines() {
        let (words, expected) = case
            .trim()
            .split_once(" -> ")
            .unwrap_or((case.trim(), "; "));
        let found = told(&server, || drop(client.run(&format!("FAIRLOCK.{words}"))));
        assert_eq!(found, expected, "{words}");
    }
}

#[test]
fn each_wait_is_counted_and_announced_by_its_end() {
    let server = announcing(&[]);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
    for (end, expected) in [
        ("time", "timeouts +1"),
        ("CLIENT UNBLOCK", "timeouts +1"),
        ("CANCEL", "cancels +1"),
        ("a second request", "take_overs +1, timeouts +1"),
        ("disconnect", "disconnects +1"),
    ] {
        let found = told(&server, || {
            let wait = if end == "time" { " WAIT 50" } else { "" };
            let waiter = server.block(&format!("FAIRLOCK.ACQUIRE k b{wait}"));
            match end {
                "CLIENT UNBLOCK" => drop(client.run(&format!("{end} {}", waiter.id))),
                "CANCEL" => assert_eq!(client.int("FAIRLOCK.CANCEL k b"), 1),
                "a second request" => {
                    client.assert_reply("FAIRLOCK.ACQUIRE k b WAIT 50", "(nil)");
                }
                _ => (),
            }
            if end == "disconnect" {
                waiter.disconnect();
                wait_until("b has left", || {
                    client.int("LLEN redisson_lock_queue:{k}") == 1
                });
            } else {
                let reply = waiter.reply();
                assert_eq!(reply == "(nil)", end != "a second request", "{reply}");
            }
        });
        assert_eq!(found, format!("enqueue k, cancel k; {expected}"), "{end}");
    }
    client.int("FAIRLOCK.CANCEL k p");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    let found = told(&server, || {
        client.int("FAIRLOCK.RELEASE k a");
        waiter.int();
    });
    let expected = "release k, acquire k; acquisitions_handed_off +1, blocked_clients -1, \
        locks_with_waiters_or_session -1, releases +1";
    assert_eq!(found, expected);
}

#[test]
fn lease_ends_and_reaped_waiters_are_counted_and_announced() {
    let server = announcing(&["--fairlock.turn", "50"]);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k dead ENQUEUE");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    let found = told(&server, || {
        // Only when all wait for its end.
        client.int("FAIRLOCK.RENEW k a LEASE 50");
        waiter.int();
    });
    let expected = "reap k, acquire k; acquisitions_handed_off +1, blocked_clients -1, lease_ends +1, \
        locks_with_waiters_or_session -1, reaped_waiters +1";
    assert_eq!(found, expected);
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
