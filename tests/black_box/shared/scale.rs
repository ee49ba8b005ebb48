//! Many holders of one lock.

use fairlock_testing::{Client, Server, wait_until};

use crate::scene::AOF;

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

/// How the server keeps the two hashes of the shared holders.
fn encodings(client: &mut Client) -> [String; 2] {
    ["k", "redisson_lock_shared:{k}"].map(|key| client.run(&format!("OBJECT ENCODING {key}")))
}

#[test]
fn a_holder_among_many_is_found_without_a_walk() {
    let (server, mut client) = Server::connected_with(AOF);
    let ask = |n| format!("FAIRLOCK.ACQUIRE k r{n} SHARED LEASE 600000");
    client.run_many((0..8).map(ask));
    assert_eq!(encodings(&mut client), ["listpack"; 2]);
    client.run_many((8..100).map(ask));
    assert_eq!(encodings(&mut client), ["hashtable"; 2]);
    // The temporary element for that is gone, here and after a restart.
    let holders = client.run("HGETALL k");
    client.assert_reply("HGET k r8", "1");
    let server = server.kill_and_restart();
    let mut client = server.connect();
    assert_eq!(client.int("HLEN k"), 101);
    client.assert_reply("HGET k r8", "1");
    assert_eq!(holders.matches("r8, 1").count(), 1, "{holders}");
    client.run("FAIRLOCK.ACQUIRE k new SHARED LEASE 600000");
    assert_eq!(encodings(&mut client), ["hashtable"; 2]);
    // A lock that becomes free and is shared anew begins anew.
    client.run("FAIRLOCK.BREAK k");
    client.run_many((0..3).map(ask));
    assert_eq!(encodings(&mut client), ["listpack"; 2]);
}
