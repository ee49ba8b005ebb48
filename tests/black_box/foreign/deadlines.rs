//! Deadlines that others change while waiters poll: the head's is right again at once, even after scripts like
//! Redisson's have changed all of them.

use fairlock_testing::{Client, Listener, Server};

use super::redisson_keys::{try_lock, try_lock_at};
use crate::scene::{QUEUE, left, now};

/// Milliseconds.
const HOUR: i64 = 3_600_000;

/// What such a script does to all deadlines when a client takes the lock.
const SUBTRACT: &[u8] = b"
    for _, owner in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
        redis.call('ZINCRBY', KEYS[1], -ARGV[1], owner)
    end";

fn subtract(client: &mut Client, wait: i64) {
    let wait = wait.to_string();
    let key = b"redisson_lock_timeout:{k}";
    let done = client.raw(&[b"EVAL", SUBTRACT, b"1", key, wait.as_bytes()]);
    done.expect("a reply");
}

fn set_score(client: &mut Client, owner: &str, score: &str) {
    client.int(&format!("ZADD redisson_lock_timeout:{{k}} {score} {owner}"));
}

#[track_caller]
fn score(client: &mut Client, owner: &str) -> i64 {
    client.int(&format!("ZSCORE redisson_lock_timeout:{{k}} {owner}"))
}

/// `a` holds `k` for an hour; `p1`, `p2` and `p3` poll.
fn polled() -> (Server, Client) {
    let (server, mut client) = Server::connected_with(&["--fairlock.turn", "60000"]);
    client.int("FAIRLOCK.ACQUIRE k a LEASE 3600000");
    for owner in ["p1", "p2", "p3"] {
        client.run(&format!(
            "FAIRLOCK.ACQUIRE k {owner} ENQUEUE PATIENCE 600000"
        ));
    }
    (server, client)
}

/// Whether a head's score is ahead of now, but not so far that scripts would line up all waiters behind it.
fn is_true(client: &mut Client, owner: &str) -> bool {
    let (score, now) = (score(client, owner), now(client));
    (now + 1..now + 24 * HOUR).contains(&score)
}

#[test]
fn the_score_of_a_polling_head_is_true_again_at_once() {
    let (_server, mut client) = polled();
    for wrong in ["0", "1", "-inf", "inf", "1e15", "0.5"] {
        set_score(&mut client, "p1", wrong);
        assert!(is_true(&mut client, "p1"), "{wrong}");
    }
    client.run("ZREM redisson_lock_timeout:{k} p1");
    assert!(is_true(&mut client, "p1"));
    for _ in 0..20 {
        subtract(&mut client, HOUR);
        assert!(is_true(&mut client, "p1"));
    }
}

#[test]
fn a_sign_of_life_counts_from_then_on_whatever_was_subtracted() {
    let (_server, mut client) = polled();
    for _ in 0..5 {
        subtract(&mut client, HOUR);
        client.run("FAIRLOCK.ACQUIRE k p1 ENQUEUE PATIENCE 900000");
        let left = left(&mut client, 0);
        assert!((890_000..=900_000).contains(&left), "{left}");
    }
}

#[test]
fn a_blocked_head_that_is_set_into_the_past_is_ahead_again_at_once() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 3600000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    for past in ["0", "1", "-5.5", "-inf"] {
        set_score(&mut client, "b", past);
        assert!(score(&mut client, "b") > now(&mut client), "{past}");
        subtract(&mut client, HOUR);
        assert!(score(&mut client, "b") > now(&mut client));
    }
    // So a script that drops dead waiters does not drop it.
    assert!(try_lock(&mut client, "u:1", 300_000) != "(nil)");
    client.assert_reply(QUEUE, "[b, u:1]");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > 0);
}

#[test]
fn no_score_ends_the_turn_of_a_polling_head() {
    let (_server, mut client) = polled();
    client.int("FAIRLOCK.RELEASE k a");
    for wrong in ["0", "1e15", "inf", "-inf"] {
        set_score(&mut client, "p1", wrong);
        assert!(is_true(&mut client, "p1"));
    }
    assert!(try_lock(&mut client, "u:1", 300_000) != "(nil)");
    assert!(client.int("FAIRLOCK.ACQUIRE k p1 ENQUEUE") > 0);
}

#[test]
fn scores_of_scripts_are_their_own_affair() {
    let (server, mut client) = Server::connected_with(&["--fairlock.turn", "60000"]);
    client.int("FAIRLOCK.ACQUIRE k a LEASE 3600000");
    let listener = Listener::new(server.port, "redisson_lock__channel:{k}:u:1");
    try_lock(&mut client, "u:1", 300_000);
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    set_score(&mut client, "u:1", "1e15");
    client.int("FAIRLOCK.RELEASE k a");
    client.assert_reply("ZSCORE redisson_lock_timeout:{k} u:1", "1000000000000000");
    assert_eq!(listener.message(), "0");
    assert_eq!(try_lock(&mut client, "u:1", 300_000), "(nil)");
    assert!(listener.is_quiet());
    assert!(!waiter.is_done());
}

#[test]
fn living_waiters_outlast_scripts_that_subtract_and_drop() {
    let (server, mut client) = polled();
    let blocked = server.block("FAIRLOCK.ACQUIRE k b");
    // An old client asks again and again, an hour's wait each time, with its clock a day ahead.
    for n in 0..10_i64 {
        subtract(&mut client, HOUR);
        let ahead = u128::try_from(now(&mut client) + 24 * HOUR).expect("after 1970");
        try_lock_at(&mut client, &format!("u:{n}"), 1, ahead);
        client.assert_start(QUEUE, "[p1, p2, p3, b");
    }
    client.int("FAIRLOCK.RELEASE k a");
    for owner in ["p1", "p2", "p3"] {
        client.int(&format!("FAIRLOCK.ACQUIRE k {owner} ENQUEUE"));
        client.int(&format!("FAIRLOCK.RELEASE k {owner}"));
    }
    assert!(blocked.int() > 0);
}
