//! `FAIRLOCK.ACQUIRE`: replies, waiting, reentrancy, take-over.

use std::time::{Duration, Instant};

use fairlock_testing::Server;

#[test]
fn the_lease_is_the_one_that_was_asked_for_or_the_default() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    assert!((20_000..=30_000).contains(&client.int("PTTL k")));
    client.int("FAIRLOCK.ACQUIRE k a LEASE 70000");
    assert!((60_000..=70_000).contains(&client.int("PTTL k")));
}

#[test]
fn nowait_gives_nil_and_never_queues() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.assert_reply("FAIRLOCK.ACQUIRE k b NOWAIT", "(nil)");
    client.assert_reply("EXISTS redisson_lock_queue:{k}", "0");
    client.assert_reply("EXISTS redisson_lock_timeout:{k}", "0");
}

#[test]
fn nowait_does_not_overtake_waiters() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    client.int("FAIRLOCK.RELEASE k a");
    client.assert_reply("FAIRLOCK.ACQUIRE k c NOWAIT", "(nil)");
    assert!(client.int("FAIRLOCK.ACQUIRE k b NOWAIT") > 0);
}

#[test]
fn wait_gives_nil_in_time_and_gives_up_the_place() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    let start = Instant::now();
    client.assert_reply("FAIRLOCK.ACQUIRE k b WAIT 50", "(nil)");
    // The server counts whole milliseconds: the one in which it began may be nearly over.
    assert!(start.elapsed() >= Duration::from_millis(49));
    client.assert_reply("FAIRLOCK.QUEUE k", "[]");
    client.assert_reply("EXISTS redisson_lock_timeout:{k}", "0");
}

#[test]
fn the_holder_asking_again_adds_a_hold_and_keeps_its_token() {
    let (_server, mut client) = Server::connected();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 10000");
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k a LEASE 60000"), token);
    assert_eq!(client.holders("k"), "[a, 2]");
    assert!(client.int("PTTL k") > 50_000);
}

#[test]
fn once_keeps_the_hold_count_and_renews_the_lease() {
    let (_server, mut client) = Server::connected();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 10000 ONCE");
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k a LEASE 60000 ONCE"), token);
    assert_eq!(client.holders("k"), "[a, 1]");
    assert!(client.int("PTTL k") > 50_000);
}

#[test]
fn the_holder_is_served_at_once_though_others_wait() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    client.int("FAIRLOCK.ACQUIRE k a");
    assert_eq!(client.holders("k"), "[a, 2]");
    client.int("FAIRLOCK.RELEASE k a ALL");
    assert!(waiter.int() > 0);
}

#[test]
fn a_second_connection_takes_the_place_over() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    let first = server.block("FAIRLOCK.ACQUIRE k b");
    let behind = server.block("FAIRLOCK.ACQUIRE k c");
    let second = server.block("FAIRLOCK.ACQUIRE k b");
    let error = first.reply();
    assert!(error.starts_with("(error) TAKENOVER "), "{error}");
    client.assert_reply(
        "FAIRLOCK.QUEUE k",
        "[[b, blocked, -1, 1], [c, blocked, -1, 1]]",
    );
    client.int("FAIRLOCK.RELEASE k a");
    assert!(second.int() > 0);
    assert!(!behind.is_done());
}

#[test]
fn enqueue_takes_over_the_place_of_a_blocked_request() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    let first = server.block("FAIRLOCK.ACQUIRE k b");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    assert!(first.reply().starts_with("(error) TAKENOVER "));
    client.assert_start("FAIRLOCK.QUEUE k", "[[b, polling, ");
}

#[test]
fn a_blocked_request_takes_over_a_polling_place() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    client.assert_reply("FAIRLOCK.QUEUE k", "[[b, blocked, -1, 1]]");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > 0);
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
fn in_a_transaction_it_acts_as_nowait() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    assert_eq!(
        client.at_once(&["FAIRLOCK.ACQUIRE k b", "FAIRLOCK.ACQUIRE k b WAIT 1000"]),
        "[(nil), (nil)]"
    );
    client.assert_reply("FAIRLOCK.QUEUE k", "[]");
    let replies = client.at_once(&["FAIRLOCK.RELEASE k a", "FAIRLOCK.ACQUIRE k b ONCE"]);
    assert!(
        replies.starts_with("[0, ") && !replies.contains("nil"),
        "{replies}"
    );
}

#[test]
fn replies_are_the_same_in_resp3() {
    let server = Server::start();
    let mut client = server.connect_resp3();
    assert!(client.int("FAIRLOCK.ACQUIRE k a") > 0);
    client.assert_reply("FAIRLOCK.ACQUIRE k b NOWAIT", "(nil)");
    client.assert_reply("FAIRLOCK.ACQUIRE k b WAIT 5", "(nil)");
    client.assert_start("FAIRLOCK.ACQUIRE k b ENQUEUE", "[1, ");
}
