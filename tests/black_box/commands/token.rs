//! Fencing tokens: they always grow, and leave no keys behind.

use fairlock_testing::{Server, wait_until};

use crate::scene::AOF;

const HOUR: i64 = 3600;
/// A minute in microseconds.
const MINUTE: i64 = 60_000_000;

#[test]
fn a_token_is_the_time_in_microseconds() {
    let (_server, mut client) = Server::connected();
    let before = client.now();
    let token = client.int("FAIRLOCK.ACQUIRE k a");
    let after = client.now();
    assert!(
        (before..=after).contains(&(token / 1000)),
        "{before} {token} {after}"
    );
}

#[test]
fn a_lock_that_a_script_took_has_no_token_until_its_holder_asks() {
    let (_server, mut client) = Server::connected();
    client.run("HSET k a 1");
    // Nor need it have a lease.
    client.assert_reply("FAIRLOCK.HOLDERS k", "[[a, 1, -1, (nil), 0, 1]]");
    client.assert_has("FAIRLOCK.INFO k", "lease, -1, token, (nil)");
    client.run("PEXPIRE k 600000");
    client.assert_reply("FAIRLOCK.RENEW k a LEASE 700000", "700000");
    assert_eq!(client.holders("k"), "[a, 1]");
    client.assert_error("FAIRLOCK.RELEASE k a TOKEN 1", "NOTHELD");
    let token = client.int("FAIRLOCK.ACQUIRE k a");
    client.assert_reply("HGETALL k", &format!("[a, 2, , {token}]"));
    client.assert_reply(&format!("FAIRLOCK.RELEASE k a ALL TOKEN {token}"), "0");
}

#[test]
fn a_token_that_is_no_number_is_none() {
    let (_server, mut client) = Server::connected();
    for token in [&b"x"[..], b"-5", b"0", b"1.5", b"9223372036854775808"] {
        client.run("HSET k a 1");
        let set = client.raw(&[b"HSET", b"k", b"", token]);
        assert!(set.is_ok());
        client.assert_has("FAIRLOCK.INFO k", "token, (nil)");
        assert!(client.int("FAIRLOCK.ACQUIRE k a") > 0);
        client.assert_reply("FAIRLOCK.RELEASE k a ALL", "0");
    }
}

#[test]
fn a_token_ahead_of_the_clock_is_kept_until_the_clock_has_passed_it() {
    let (_server, mut client) = Server::connected();
    let ahead = client.int("FAIRLOCK.ACQUIRE k a") + MINUTE;
    client.int("FAIRLOCK.RELEASE k a");
    // As it is after the clock was set back by a minute, and the server has restarted.
    client.run(&format!("SET fairlock_token:{{k}} {ahead}"));
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k a"), ahead + 1);
    assert_eq!(client.int("GET fairlock_token:{k}"), ahead + 1);
    let end = client.int("PEXPIRETIME fairlock_token:{k}");
    assert_eq!(end, (ahead + 1) / 1000 + 1);
    client.int("FAIRLOCK.RELEASE k a");
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k b"), ahead + 2);
    // A token farther ahead than clocks may differ does not affect other locks.
    assert!(client.int("FAIRLOCK.ACQUIRE other a") < ahead);
}

#[test]
fn a_token_that_was_ahead_is_remembered_though_all_keys_are_gone() {
    let (_server, mut client) = Server::connected();
    let ahead = client.int("FAIRLOCK.ACQUIRE k a") + 9_000_000;
    client.int("FAIRLOCK.RELEASE k a");
    client.run(&format!("SET fairlock_token:{{k}} {ahead}"));
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k a"), ahead + 1);
    client.run("FLUSHALL");
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k a"), ahead + 2);
    client.int("FAIRLOCK.RELEASE k a");
    // No server has given this one.
    client.run(&format!("SET fairlock_token:{{k}} {}", i64::MAX));
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k a"), ahead + 3);
}

#[test]
fn the_token_of_a_lock_that_is_freed_behind_its_clock_is_kept() {
    let server = Server::with_movable_clock(AOF);
    let mut client = server.connect();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    assert_eq!(client.int("DBSIZE"), 1);
    server.set_clock(-HOUR);
    wait_until("the step is noticed", || client.int("PTTL k") > HOUR * 1000);
    client.assert_reply("FAIRLOCK.ACQUIRE k b NOWAIT", "(nil)");
    client.int("FAIRLOCK.RELEASE k a");
    assert_eq!(client.int("GET fairlock_token:{k}"), token);
    let next = client.int("FAIRLOCK.ACQUIRE k b");
    assert_eq!(next, token + 1);
}

#[test]
fn tokens_grow_whatever_others_delete() {
    let (_server, mut client) = Server::connected();
    let mut last = 0;
    for way in [
        "DEL k",
        // Only the token is left. Without waiters that is noticed at the next request.
        "HDEL k a",
        "FLUSHALL",
        "FAIRLOCK.BREAK k",
        "UNLINK k",
        "RENAME k l",
    ] {
        for _ in 0..5 {
            let token = client.int("FAIRLOCK.ACQUIRE k a");
            assert!(token > last, "{way}");
            last = token;
            client.run(way);
        }
    }
}
