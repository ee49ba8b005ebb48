//! `FAIRLOCK.RELEASE`.

use fairlock_testing::Server;

#[test]
fn a_release_replies_the_holds_that_remain() {
    let server = Server::start();
    let mut client = server.connect();
    for _ in 0..3 {
        client.int("FAIRLOCK.ACQUIRE k a");
    }
    assert_eq!(client.run("FAIRLOCK.RELEASE k a"), "2");
    assert_eq!(client.run("FAIRLOCK.RELEASE k a"), "1");
    assert_eq!(client.run("FAIRLOCK.RELEASE k a"), "0");
    assert_eq!(client.run("EXISTS k"), "0");
}

#[test]
fn all_drops_every_hold() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.ACQUIRE k a");
    assert_eq!(client.run("FAIRLOCK.RELEASE k a ALL"), "0");
    assert_eq!(client.run("EXISTS k"), "0");
}

#[test]
fn who_does_not_hold_the_lock_cannot_release_it() {
    let server = Server::start();
    let mut client = server.connect();
    let error = client.run("FAIRLOCK.RELEASE k a");
    assert!(error.starts_with("(error) NOTHELD "), "{error}");
    client.int("FAIRLOCK.ACQUIRE k a");
    let error = client.run("FAIRLOCK.RELEASE k b ALL");
    assert!(error.starts_with("(error) NOTHELD "), "{error}");
    assert_eq!(client.holders("k"), "[a, 1]");
}

#[test]
fn with_a_token_only_that_acquisition_is_released() {
    let server = Server::start();
    let mut client = server.connect();
    let old = client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.RELEASE k a");
    let token = client.int("FAIRLOCK.ACQUIRE k a");
    let error = client.run(&format!("FAIRLOCK.RELEASE k a TOKEN {old}"));
    assert!(error.starts_with("(error) NOTHELD "), "{error}");
    assert_eq!(client.holders("k"), "[a, 1]");
    let released = client.run(&format!("FAIRLOCK.RELEASE k a ALL TOKEN {token}"));
    assert_eq!(released, "0");
}

#[test]
fn a_partial_release_serves_no_waiter() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    assert_eq!(client.run("FAIRLOCK.RELEASE k a"), "1");
    assert!(!waiter.is_done());
    assert_eq!(client.holders("k"), "[a, 1]");
    assert_eq!(client.run("FAIRLOCK.RELEASE k a"), "0");
    assert!(waiter.int() > 0);
}

#[test]
fn a_foreign_hold_count_is_understood() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("HSET k a 2");
    assert_eq!(client.run("FAIRLOCK.RELEASE k a"), "1");
    assert_eq!(client.run("FAIRLOCK.RELEASE k a"), "0");
}
