//! Fencing tokens: they grow whatever happens.

use crate::server::Server;

#[test]
fn tokens_grow_from_one_acquisition_to_the_next() {
    let server = Server::start();
    let mut client = server.connect();
    let mut last = 0;
    for _ in 0..100 {
        let token = client.int("FAIRLOCK.ACQUIRE k a");
        assert!(token > last);
        last = token;
        client.int("FAIRLOCK.RELEASE k a");
    }
    assert_eq!(client.int("GET redisson_lock_token:{k}"), last);
}

#[test]
fn a_lock_never_seen_before_starts_at_the_time_in_microseconds() {
    let server = Server::start();
    let mut client = server.connect();
    let before: i64 = client
        .run("TIME")
        .trim_matches(['[', ']'])
        .replace(", ", "")
        .parse()
        .unwrap_or(0);
    let token = client.int("FAIRLOCK.ACQUIRE k a");
    // TIME does not pad its microseconds: the sixth digit of them may be missing.
    assert!(
        token > 1_700_000_000_000_000 && before > 0,
        "{before} {token}"
    );
}

#[test]
fn tokens_grow_after_their_key_was_deleted() {
    let server = Server::start();
    let mut client = server.connect();
    let mut last = 0;
    for _ in 0..20 {
        let token = client.int("FAIRLOCK.ACQUIRE k a");
        assert!(token > last);
        last = token;
        client.int("FAIRLOCK.RELEASE k a");
        client.run("DEL redisson_lock_token:{k}");
    }
}

#[test]
fn tokens_grow_after_the_last_of_them_were_lost() {
    let server = Server::start();
    let mut client = server.connect();
    let first = client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.RELEASE k a");
    let mut last = first;
    for _ in 0..20 {
        last = client.int("FAIRLOCK.ACQUIRE k a");
        client.int("FAIRLOCK.RELEASE k a");
    }
    // What an old snapshot brings back, or a replica that had not heard of the rest.
    client.run(&format!("SET redisson_lock_token:{{k}} {first}"));
    assert!(client.int("FAIRLOCK.ACQUIRE k b") > last);
}

#[test]
fn tokens_grow_after_their_key_has_expired() {
    let server = Server::with(&["--fairlock.token-ttl", "1"]);
    let mut client = server.connect();
    let mut last = 0;
    for _ in 0..20 {
        let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 1");
        assert!(token > last);
        last = token;
        crate::server::wait_until("it has expired", || {
            client.run("EXISTS redisson_lock_token:{k}") == "0"
        });
    }
}

#[test]
fn the_token_key_expires_after_its_last_use() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let left = client.int("PTTL redisson_lock_token:{k}");
    assert!((86_390_000..=86_400_000).contains(&left), "{left}");
    client.run("PEXPIRE redisson_lock_token:{k} 50000");
    client.int("FAIRLOCK.ACQUIRE k a");
    assert!(client.int("PTTL redisson_lock_token:{k}") > 86_000_000);
}

#[test]
fn an_unusable_token_refuses_the_lock_and_changes_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    for token in [
        "x",
        "-5",
        "0",
        "1.5",
        "9223372036854775807",
        "9223372036854775808",
    ] {
        client.run(&format!("SET redisson_lock_token:{{k}} {token}"));
        let error = client.run("FAIRLOCK.ACQUIRE k a");
        assert!(
            error.starts_with("(error) ERR ") && error.contains("token"),
            "{error}"
        );
        assert_eq!(client.run("EXISTS k"), "0");
        assert_eq!(client.run("GET redisson_lock_token:{k}"), token);
    }
}

#[test]
fn a_holder_that_asks_again_is_told_of_an_unusable_token() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    for token in ["x", "-5", "0"] {
        client.run(&format!("SET redisson_lock_token:{{k}} {token}"));
        let error = client.run("FAIRLOCK.ACQUIRE k a");
        assert!(
            error.starts_with("(error) ERR ") && error.contains("token"),
            "{error}"
        );
        assert_eq!(client.run("HGETALL k"), "[a, 1]");
    }
}

#[test]
fn a_waiter_is_told_of_an_unusable_token_and_does_not_hang() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let one = server.block("FAIRLOCK.ACQUIRE k b");
    let two = server.block("FAIRLOCK.ACQUIRE k c");
    client.run("SET redisson_lock_token:{k} x");
    assert_eq!(client.run("FAIRLOCK.RELEASE k a"), "0");
    for waiter in [one, two] {
        let error = waiter.reply();
        assert!(error.contains("token"), "{error}");
    }
    assert_eq!(client.run("KEYS *"), "[redisson_lock_token:{k}]");
}

#[test]
fn tokens_of_a_foreign_counter_go_on_growing() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("SET redisson_lock_token:{k} 41");
    assert!(client.int("FAIRLOCK.ACQUIRE k a") > 41);
}
