//! `FAIRLOCK.QUEUE`.

use fairlock_testing::Server;

#[test]
fn limit_shows_a_part() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    for owner in 0..5 {
        client.run(&format!("FAIRLOCK.ACQUIRE k w{owner} ENQUEUE"));
    }
    let owners = |reply: String| {
        let owners: Vec<_> = reply
            .split(['[', ','])
            .filter(|word| word.starts_with('w'))
            .map(str::to_owned)
            .collect();
        owners.join(" ")
    };
    assert_eq!(owners(client.run("FAIRLOCK.QUEUE k LIMIT 1 2")), "w1 w2");
    assert_eq!(owners(client.run("FAIRLOCK.QUEUE k limit 3 -1")), "w3 w4");
    assert_eq!(owners(client.run("FAIRLOCK.QUEUE k LIMIT 0 0")), "");
    assert_eq!(owners(client.run("FAIRLOCK.QUEUE k LIMIT 9 1")), "");
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
