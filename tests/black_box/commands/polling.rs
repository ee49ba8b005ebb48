//! Waiters that do not block: ENQUEUE, wake-ups, turns.

use fairlock_testing::{Server, wait_until};

#[test]
fn enqueue_replies_position_and_when_to_ask_again() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 60000");
    client.assert_reply("FAIRLOCK.ACQUIRE k b ENQUEUE PATIENCE 10000", "[1, 5000]");
    client.assert_reply("FAIRLOCK.ACQUIRE k c ENQUEUE PATIENCE 10000", "[2, 5000]");
    client.assert_reply("FAIRLOCK.ACQUIRE k b ENQUEUE PATIENCE 10000", "[1, 5000]");
    client.assert_reply("FAIRLOCK.ACQUIRE k d ENQUEUE PATIENCE 1", "[3, 1]");
    client.assert_reply("LRANGE redisson_lock_queue:{k} 0 -1", "[b, c, d]");
}

#[test]
fn dead_waiters_in_a_row_cost_one_turn() {
    let (server, mut client) = Server::connected_with(&["--fairlock.turn", "3000"]);
    client.int("FAIRLOCK.ACQUIRE k a");
    for n in 0..10 {
        client.run(&format!("FAIRLOCK.ACQUIRE k dead{n} ENQUEUE"));
    }
    let waiter = server.block("FAIRLOCK.ACQUIRE k alive");
    let freed = client.now();
    client.int("FAIRLOCK.RELEASE k a");
    // Once the head has been silent for a tenth of its turn, all have until the end of that turn.
    wait_until("the last of them has no longer than a turn", || {
        // Looked at once, as they may be gone a moment later.
        let queue = client.run("FAIRLOCK.QUEUE k");
        let polling = queue.split(", polling, ").skip(1);
        let left = polling.map(|rest| rest.split(',').next().and_then(|ms| ms.parse().ok()));
        let left: Vec<i64> = left.map(|ms| ms.expect("a number")).collect();
        left.len() < 10 || left[9] <= 3000
    });
    assert!(waiter.int() > 0);
    // Ten turns would have taken 30 s.
    assert!(client.now() <= freed + 20_000);
    client.assert_reply("FAIRLOCK.QUEUE k", "[]");
}
