//! Waiters that do not block: ENQUEUE, wake-ups, turns.

use crate::server::{Server, wait_until};

#[test]
fn enqueue_replies_position_and_when_to_ask_again() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 60000");
    assert_eq!(
        client.run("FAIRLOCK.ACQUIRE k b ENQUEUE PATIENCE 10000"),
        "[1, 5000]"
    );
    assert_eq!(
        client.run("FAIRLOCK.ACQUIRE k c ENQUEUE PATIENCE 10000"),
        "[2, 5000]"
    );
    assert_eq!(
        client.run("FAIRLOCK.ACQUIRE k b ENQUEUE PATIENCE 10000"),
        "[1, 5000]"
    );
    assert_eq!(
        client.run("FAIRLOCK.ACQUIRE k d ENQUEUE PATIENCE 1"),
        "[3, 1]"
    );
    assert_eq!(
        client.run("LRANGE redisson_lock_queue:{k} 0 -1"),
        "[b, c, d]"
    );
}

#[test]
fn asking_again_is_a_sign_of_life() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE PATIENCE 10000");
    let first: f64 = client
        .run("ZSCORE redisson_lock_timeout:{k} b")
        .parse()
        .expect("a score");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE PATIENCE 60000");
    let second: f64 = client
        .run("ZSCORE redisson_lock_timeout:{k} b")
        .parse()
        .expect("a score");
    assert!(second >= first + 49_000.0, "{first} {second}");
}

#[test]
fn enqueue_acquires_a_free_lock() {
    let server = Server::start();
    let mut client = server.connect();
    assert!(client.int("FAIRLOCK.ACQUIRE k a ENQUEUE") > 0);
    assert_eq!(client.run("EXISTS redisson_lock_queue:{k}"), "0");
}

#[test]
fn a_polling_head_is_woken_and_comes_for_the_lock() {
    let server = Server::start();
    let mut client = server.connect();
    let mut listener = redis::Client::open(format!("redis://127.0.0.1:{}", server.port))
        .and_then(|client| client.get_connection())
        .expect("a connection");
    let mut channel = listener.as_pubsub();
    channel
        .subscribe("redisson_lock__channel:{k}:b")
        .expect("subscribed");
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    client.int("FAIRLOCK.RELEASE k a");
    let message = channel.get_message().expect("a wake-up");
    assert_eq!(message.get_payload::<String>(), Ok("0".to_owned()));
    assert_eq!(client.run("EXISTS k"), "0");
    assert!(client.int("FAIRLOCK.ACQUIRE k b ENQUEUE") > 0);
    assert_eq!(client.run("FAIRLOCK.QUEUE k"), "[]");
}

#[test]
fn a_polling_head_that_does_not_come_loses_its_turn() {
    let server = Server::with(&["--fairlock.turn", "50"]);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let waiter = server.block("FAIRLOCK.ACQUIRE k c");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > 0);
    assert_eq!(client.run("FAIRLOCK.QUEUE k"), "[]");
}

#[test]
fn dead_waiters_in_a_row_cost_one_turn() {
    let server = Server::with(&["--fairlock.turn", "400"]);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    for n in 0..10 {
        client.run(&format!("FAIRLOCK.ACQUIRE k dead{n} ENQUEUE"));
    }
    let waiter = server.block("FAIRLOCK.ACQUIRE k alive");
    client.int("FAIRLOCK.RELEASE k a");
    // One turn is running, for all of them: their deadlines are its end.
    let first = client.run("ZSCORE redisson_lock_timeout:{k} dead0");
    assert_eq!(client.run("ZSCORE redisson_lock_timeout:{k} dead9"), first);
    let until: u64 = first.parse().expect("ms");
    assert!(waiter.int() > 0);
    let now = client.run("TIME");
    let seconds: u64 = now[1..]
        .split(',')
        .next()
        .and_then(|s| s.parse().ok())
        .expect("seconds");
    // Ten turns would have taken 4 s.
    assert!(seconds * 1000 <= until + 1_500, "{now} {until}");
    assert_eq!(client.run("FAIRLOCK.QUEUE k"), "[]");
}

#[test]
fn a_woken_waiter_that_asks_again_keeps_its_place() {
    let server = Server::with(&["--fairlock.turn", "100"]);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    for owner in ["dead", "alive"] {
        client.run(&format!(
            "FAIRLOCK.ACQUIRE k {owner} ENQUEUE PATIENCE 60000"
        ));
    }
    client.int("FAIRLOCK.RELEASE k a");
    let asked = client.run("FAIRLOCK.ACQUIRE k alive ENQUEUE PATIENCE 60000");
    assert!(asked.starts_with("[2, "), "{asked}");
    wait_until("the dead head is gone", || {
        client.int("LLEN redisson_lock_queue:{k}") == 1
    });
    assert!(client.int("FAIRLOCK.ACQUIRE k alive ENQUEUE") > 0);
}

#[test]
fn a_waiter_whose_deadline_is_over_is_passed_by() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE PATIENCE 1");
    client.run("FAIRLOCK.ACQUIRE k c ENQUEUE PATIENCE 60000");
    let deadline: i64 = client.int("ZSCORE redisson_lock_timeout:{k} b");
    wait_until("b's deadline is over", || {
        let now = client.run("TIME");
        let numbers: Vec<i64> = now
            .trim_matches(['[', ']'])
            .split(", ")
            .filter_map(|n| n.parse().ok())
            .collect();
        numbers[0] * 1000 + numbers[1] / 1000 > deadline
    });
    client.int("FAIRLOCK.RELEASE k a");
    assert_eq!(client.run("LRANGE redisson_lock_queue:{k} 0 -1"), "[c]");
    assert!(client.int("FAIRLOCK.ACQUIRE k c NOWAIT") > 0);
}
