//! Many holders of one lock.

use fairlock_testing::{Server, wait_until};

#[test]
fn ten_thousand_hold_it_and_all_their_leases_end() {
    let (server, mut client) = Server::connected();
    let ask = |n| format!("FAIRLOCK.ACQUIRE k r{n} SHARED LEASE 6000{:03}", n % 1000);
    for first in (0..10_000).step_by(500) {
        client.run_many((first..first + 500).map(ask));
    }
    assert_eq!(client.int("HLEN redisson_lock_shared:{k}"), 10_000);
    client.assert_has("FAIRLOCK.INFO k", "holders, 10000, limit, 0");
    let writer = server.block("FAIRLOCK.ACQUIRE k w LEASE 600000");
    for n in 0..5_000 {
        client.run(&format!("FAIRLOCK.RELEASE k r{n}"));
    }
    assert!(!writer.is_done());
    // All that are left end with the key.
    client.run("PEXPIRE k 100");
    writer.int();
    wait_until("nothing is left of them", || {
        client.run("EXISTS redisson_lock_shared:{k}") == "0"
    });
    assert_eq!(client.holders("k"), "[w, 1]");
}

#[test]
fn leases_that_end_at_the_same_time_are_dropped_in_pieces() {
    let (server, mut client) = Server::connected();
    client.run_many((0..3_000).map(|n| format!("FAIRLOCK.ACQUIRE k r{n} SHARED LEASE 1500")));
    client.int("FAIRLOCK.ACQUIRE k z SHARED LEASE 600000");
    wait_until("one is left", || {
        client.run("HLEN redisson_lock_shared:{k}") == "1"
    });
    assert_eq!(server.count("lease_ends"), 3000);
}
