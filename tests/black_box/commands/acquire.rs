//! `FAIRLOCK.ACQUIRE`: the length of a wait, take-over, identity, RESP3.

use std::time::{Duration, Instant};

use fairlock_testing::Server;

/// Also to ask for something else.
#[test]
fn a_second_request_takes_the_place_over() {
    for (one, other, shown) in [
        ("", "", "blocked, -1, 1"),
        (" SHARED", "", "blocked, -1, 1"),
        ("", " ENQUEUE", "polling, "),
    ] {
        let (server, mut client) = Server::connected();
        client.int("FAIRLOCK.ACQUIRE k a");
        let first = server.block(&format!("FAIRLOCK.ACQUIRE k b{one}"));
        let behind = server.block("FAIRLOCK.ACQUIRE k c");
        let second = server.block(&format!("FAIRLOCK.ACQUIRE k b{other}"));
        first.assert_start("(error) TAKENOVER ");
        client.assert_start("FAIRLOCK.QUEUE k", &format!("[[b, {shown}"));
        client.assert_has("FAIRLOCK.QUEUE k", "], [c, blocked, -1, 1]]");
        client.int("FAIRLOCK.RELEASE k a");
        let token = client.int("FAIRLOCK.ACQUIRE k b ENQUEUE ONCE");
        assert!(!other.is_empty() || second.int() == token);
        assert!(!behind.is_done());
        client.assert_reply("EXISTS redisson_lock_shared:{k}", "0");
    }
}

#[test]
fn a_wait_is_not_shorter_than_it_says() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    // The server counts whole milliseconds, and may begin at any moment of one.
    for _ in 0..100 {
        let start = Instant::now();
        client.assert_reply("FAIRLOCK.ACQUIRE k b WAIT 3", "(nil)");
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_millis(3), "{elapsed:?}");
    }
}

#[test]
fn a_star_is_the_connections_own_identity() {
    let server = Server::start();
    let (mut one, mut two) = (server.connect(), server.connect());
    one.int("FAIRLOCK.ACQUIRE k *");
    two.assert_reply("FAIRLOCK.ACQUIRE k * NOWAIT", "(nil)");
    let owner = one.holders("k");
    let owner = owner.trim_matches('[').trim_end_matches(", 1]");
    let (run, id) = owner.split_once(':').expect("uuid:id");
    assert_eq!(run.len(), 36, "{run}");
    assert_eq!(id, one.id.to_string());
    two.assert_error("FAIRLOCK.RELEASE k *", "NOTHELD");
    one.assert_reply("FAIRLOCK.RELEASE k *", "0");
}

#[test]
fn in_resp3_there_are_maps_and_booleans_and_all_else_is_the_same() {
    let server = Server::start();
    let mut client = server.connect_resp3();
    client.assert_start("FAIRLOCK.INFO k", "{owner: (nil), holds: 0");
    client.assert_has("FAIRLOCK.INFO k", "session: false");
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000 SESSION");
    client.assert_has("FAIRLOCK.HOLDERS k", &format!(", {token}, true, 1]]"));
    client.assert_reply("FAIRLOCK.ACQUIRE k b NOWAIT", "(nil)");
    client.assert_reply("FAIRLOCK.ACQUIRE k b WAIT 5", "(nil)");
    client.assert_start("FAIRLOCK.ACQUIRE k b ENQUEUE", "[1, ");
}
