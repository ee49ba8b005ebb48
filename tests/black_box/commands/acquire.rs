//! `FAIRLOCK.ACQUIRE`: replies, waiting, reentrancy, take-over.

use std::time::{Duration, Instant};

use fairlock_testing::{Server, wait_until};

#[test]
fn a_free_lock_is_acquired_with_a_token() {
    let server = Server::start();
    let mut client = server.connect();
    assert!(client.int("FAIRLOCK.ACQUIRE k a") > 0);
    assert_eq!(client.holders("k"), "[a, 1]");
}

#[test]
fn the_default_lease_applies_without_lease() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let lease = client.int("PTTL k");
    assert!((20_000..=30_000).contains(&lease), "{lease}");
}

#[test]
fn lease_sets_the_expiry_of_the_lock() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 70000");
    let lease = client.int("PTTL k");
    assert!((60_000..=70_000).contains(&lease), "{lease}");
}

#[test]
fn nowait_gives_nil_and_never_queues() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    assert_eq!(client.run("FAIRLOCK.ACQUIRE k b NOWAIT"), "(nil)");
    assert_eq!(client.run("EXISTS redisson_lock_queue:{k}"), "0");
    assert_eq!(client.run("EXISTS redisson_lock_timeout:{k}"), "0");
}

#[test]
fn nowait_does_not_overtake_waiters() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    client.int("FAIRLOCK.RELEASE k a");
    assert_eq!(client.run("FAIRLOCK.ACQUIRE k c NOWAIT"), "(nil)");
    assert!(client.int("FAIRLOCK.ACQUIRE k b NOWAIT") > 0);
}

#[test]
fn wait_gives_nil_in_time_and_gives_up_the_place() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let start = Instant::now();
    assert_eq!(client.run("FAIRLOCK.ACQUIRE k b WAIT 50"), "(nil)");
    // The server counts whole milliseconds: the one in which it began may be nearly over.
    assert!(start.elapsed() >= Duration::from_millis(49));
    assert_eq!(client.run("FAIRLOCK.QUEUE k"), "[]");
    assert_eq!(client.run("EXISTS redisson_lock_timeout:{k}"), "0");
}

#[test]
fn a_waiter_whose_time_is_up_does_not_hold_up_those_behind_it() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let first = server.block("FAIRLOCK.ACQUIRE k b WAIT 60");
    let second = server.block("FAIRLOCK.ACQUIRE k c");
    assert_eq!(first.reply(), "(nil)");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(second.int() > 0);
}

#[test]
fn without_wait_it_blocks_until_acquired() {
    let server = Server::start();
    let mut client = server.connect();
    let token = client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > token);
    assert_eq!(client.holders("k"), "[b, 1]");
}

#[test]
fn the_holder_asking_again_adds_a_hold_and_keeps_its_token() {
    let server = Server::start();
    let mut client = server.connect();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 10000");
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k a LEASE 60000"), token);
    assert_eq!(client.holders("k"), "[a, 2]");
    assert!(client.int("PTTL k") > 50_000);
}

#[test]
fn once_keeps_the_hold_count_and_renews_the_lease() {
    let server = Server::start();
    let mut client = server.connect();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 10000 ONCE");
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k a LEASE 60000 ONCE"), token);
    assert_eq!(client.holders("k"), "[a, 1]");
    assert!(client.int("PTTL k") > 50_000);
}

#[test]
fn the_holder_is_served_at_once_though_others_wait() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    client.int("FAIRLOCK.ACQUIRE k a");
    assert_eq!(client.holders("k"), "[a, 2]");
    client.int("FAIRLOCK.RELEASE k a ALL");
    assert!(waiter.int() > 0);
}

#[test]
fn a_second_connection_takes_the_place_over() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let first = server.block("FAIRLOCK.ACQUIRE k b");
    let behind = server.block("FAIRLOCK.ACQUIRE k c");
    let second = server.block("FAIRLOCK.ACQUIRE k b");
    let error = first.reply();
    assert!(error.starts_with("(error) TAKENOVER "), "{error}");
    assert_eq!(
        client.run("FAIRLOCK.QUEUE k"),
        "[[b, blocked, -1, 1], [c, blocked, -1, 1]]"
    );
    client.int("FAIRLOCK.RELEASE k a");
    assert!(second.int() > 0);
    assert!(!behind.is_done());
}

#[test]
fn enqueue_takes_over_the_place_of_a_blocked_request() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let first = server.block("FAIRLOCK.ACQUIRE k b");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    assert!(first.reply().starts_with("(error) TAKENOVER "));
    assert!(client.run("FAIRLOCK.QUEUE k").starts_with("[[b, polling, "));
}

#[test]
fn a_blocked_request_takes_over_a_polling_place() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    assert_eq!(client.run("FAIRLOCK.QUEUE k"), "[[b, blocked, -1, 1]]");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > 0);
}

#[test]
fn a_star_is_the_connections_own_identity() {
    let server = Server::start();
    let (mut one, mut two) = (server.connect(), server.connect());
    one.int("FAIRLOCK.ACQUIRE k *");
    assert_eq!(two.run("FAIRLOCK.ACQUIRE k * NOWAIT"), "(nil)");
    let owner = one.holders("k");
    let owner = owner.trim_matches('[').trim_end_matches(", 1]");
    let (run, id) = owner.split_once(':').expect("uuid:id");
    assert_eq!(run.len(), 36, "{run}");
    assert_eq!(id, one.id.to_string());
    assert!(
        two.run("FAIRLOCK.RELEASE k *")
            .starts_with("(error) NOTHELD ")
    );
    assert_eq!(one.run("FAIRLOCK.RELEASE k *"), "0");
}

#[test]
fn in_a_transaction_it_acts_as_nowait() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("MULTI");
    client.run("FAIRLOCK.ACQUIRE k b");
    client.run("FAIRLOCK.ACQUIRE k b WAIT 1000");
    assert_eq!(client.run("EXEC"), "[(nil), (nil)]");
    assert_eq!(client.run("FAIRLOCK.QUEUE k"), "[]");
    client.run("MULTI");
    client.run("FAIRLOCK.RELEASE k a");
    client.run("FAIRLOCK.ACQUIRE k b ONCE");
    let replies = client.run("EXEC");
    assert!(
        replies.starts_with("[0, ") && !replies.contains("nil"),
        "{replies}"
    );
}

#[test]
fn in_a_script_it_acts_as_nowait() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let script = b"return redis.call('FAIRLOCK.ACQUIRE', KEYS[1], 'b')";
    let reply = client.raw(&[b"EVAL", script, b"1", b"k"]);
    assert_eq!(reply, Ok(redis::Value::Nil));
    assert_eq!(client.run("FAIRLOCK.QUEUE k"), "[]");
    let script = b"return redis.call('FAIRLOCK.ACQUIRE', KEYS[1], '*')";
    let error = client
        .raw(&[b"EVAL", script, b"1", b"k"])
        .expect_err("no connection");
    assert!(error.contains("cannot be used in a script"), "{error}");
}

#[test]
fn a_queue_that_is_full_takes_no_more() {
    let server = Server::with(&["--fairlock.max-waiters", "1"]);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    for request in ["FAIRLOCK.ACQUIRE k c", "FAIRLOCK.ACQUIRE k c ENQUEUE"] {
        let error = client.run(request);
        assert!(error.starts_with("(error) QUEUEFULL "), "{error}");
    }
    // The queue itself stays as it is.
    assert!(!waiter.is_done());
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > 0);
}

#[test]
fn locks_of_one_name_in_two_databases_are_two_locks() {
    let server = Server::start();
    let (mut zero, mut one) = (server.connect(), server.connect());
    one.run("SELECT 1");
    zero.int("FAIRLOCK.ACQUIRE k a");
    one.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    one.int("FAIRLOCK.RELEASE k a");
    assert!(
        one.run("FAIRLOCK.ACQUIRE k c ENQUEUE")
            .parse::<i64>()
            .is_ok()
    );
    assert!(!waiter.is_done());
    zero.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > 0);
}

#[test]
fn waiting_shows_in_info_clients_and_ends_there() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    assert_eq!(server.blocked(), 1);
    client.int("FAIRLOCK.RELEASE k a");
    waiter.int();
    wait_until("no client is blocked", || server.blocked() == 0);
}

#[test]
fn replies_are_the_same_in_resp3() {
    let server = Server::start();
    let mut client = server.connect_resp3();
    assert!(client.int("FAIRLOCK.ACQUIRE k a") > 0);
    assert_eq!(client.run("FAIRLOCK.ACQUIRE k b NOWAIT"), "(nil)");
    assert_eq!(client.run("FAIRLOCK.ACQUIRE k b WAIT 5"), "(nil)");
    assert!(
        client
            .run("FAIRLOCK.ACQUIRE k b ENQUEUE")
            .starts_with("[1, ")
    );
}
