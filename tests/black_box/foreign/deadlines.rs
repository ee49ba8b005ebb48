//! Deadlines that others change while waiters poll: the head's is right again at once, even after scripts have changed
//! all of them.

use fairlock_testing::{Client, Listener, Server, lua};

use crate::scene::QUEUE;

/// Milliseconds.
const HOUR: i64 = 3_600_000;

/// What Redisson's script does to all deadlines when a client takes the lock.
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

/// Asks for `k` by a script, which drops a head whose deadline is over.
fn ask_by_script(client: &mut Client, owner: &str) -> String {
    lua::load(client);
    client.run(&format!("LUA.ACQUIRE k {owner} ENQUEUE"))
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
    client.enqueue(["p1", "p2", "p3"]);
    (server, client)
}

/// Whether a head's score is ahead of now, but not so far that scripts would line up all waiters behind it.
fn is_true(client: &mut Client, owner: &str) -> bool {
    let (score, now) = (score(client, owner), client.now());
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
fn no_score_ends_the_turn_of_a_polling_head() {
    let (_server, mut client) = polled();
    client.int("FAIRLOCK.RELEASE k a");
    for wrong in ["0", "1e15", "inf", "-inf"] {
        set_score(&mut client, "p1", wrong);
        assert!(is_true(&mut client, "p1"));
    }
    assert!(ask_by_script(&mut client, "u:1").starts_with("[4, "));
    assert!(client.int("FAIRLOCK.ACQUIRE k p1 ENQUEUE") > 0);
}

#[test]
fn scores_of_scripts_are_their_own_affair() {
    let (server, mut client) = Server::connected_with(&["--fairlock.turn", "60000"]);
    client.int("FAIRLOCK.ACQUIRE k a LEASE 3600000");
    let listener = Listener::new(server.port, "redisson_lock__channel:{k}:u:1");
    ask_by_script(&mut client, "u:1");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    set_score(&mut client, "u:1", "1e15");
    client.int("FAIRLOCK.RELEASE k a");
    client.assert_reply("ZSCORE redisson_lock_timeout:{k} u:1", "1000000000000000");
    assert_eq!(listener.message(), "0");
    let token = ask_by_script(&mut client, "u:1");
    assert!(token.parse::<i64>().is_ok(), "{token}");
    assert!(listener.is_quiet());
    assert!(!waiter.is_done());
}

#[test]
fn living_waiters_outlast_scripts_that_subtract_and_drop() {
    let (server, mut client) = polled();
    let blocked = server.block("FAIRLOCK.ACQUIRE k b");
    for _ in 0..10 {
        subtract(&mut client, HOUR);
        // As to a client whose clock is ahead they seem dead.
        client.at_once(&[
            "LPOP redisson_lock_queue:{k} 3",
            "ZREM redisson_lock_timeout:{k} p1 p2 p3",
        ]);
        client.assert_reply(QUEUE, "[p1, p2, p3, b]");
    }
    client.int("FAIRLOCK.RELEASE k a");
    for owner in ["p1", "p2", "p3"] {
        client.int(&format!("FAIRLOCK.ACQUIRE k {owner} ENQUEUE"));
        client.int(&format!("FAIRLOCK.RELEASE k {owner}"));
    }
    assert!(blocked.int() > 0);
}
