//! `FAIRLOCK.QUEUE`.

use fairlock_testing::Server;

use crate::scene::owners;

#[test]
fn limit_shows_a_part_and_of_each_waiter_what_it_tolerates() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    for owner in 0..5 {
        client.run(&format!("FAIRLOCK.ACQUIRE k w{owner} SHARED 7 ENQUEUE"));
    }
    for (limit, shown) in [
        ("1 2", &["w1", "w2"][..]),
        ("3 -1", &["w3", "w4"]),
        ("0 0", &[]),
        ("9 1", &[]),
    ] {
        let queue = client.run(&format!("FAIRLOCK.QUEUE k limit {limit}"));
        assert_eq!(owners(&queue), shown, "{limit}");
        assert_eq!(queue.matches(", 7]").count(), shown.len(), "{queue}");
    }
}

#[test]
fn a_waiter_that_is_dead_or_has_no_deadline_has_nothing_left() {
    let (_server, mut client) = Server::connected();
    // In one transaction, because the server repairs it a moment later.
    for words in [
        "MULTI",
        "HSET k a 1",
        "RPUSH redisson_lock_queue:{k} b c",
        "ZADD redisson_lock_timeout:{k} 5 b",
        "FAIRLOCK.QUEUE k",
        "ZCARD redisson_lock_timeout:{k}",
    ] {
        client.run(words);
    }
    // QUEUE is read-only: it repairs nothing.
    client.assert_reply(
        "EXEC",
        "[1, 2, 1, [[b, polling, 0, 1], [c, polling, 0, 1]], 1]",
    );
}
