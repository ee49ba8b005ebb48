//! `FAIRLOCK.RELEASE`.

use fairlock_testing::Server;

#[test]
fn a_release_replies_the_holds_that_remain() {
    let (_server, mut client) = Server::connected();
    for _ in 0..3 {
        client.int("FAIRLOCK.ACQUIRE k a");
    }
    client.assert_reply("FAIRLOCK.RELEASE k a", "2");
    client.assert_reply("FAIRLOCK.RELEASE k a", "1");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    client.assert_reply("EXISTS k", "0");
}

#[test]
fn who_does_not_hold_the_lock_cannot_release_it() {
    let (_server, mut client) = Server::connected();
    client.assert_error("FAIRLOCK.RELEASE k a", "NOTHELD");
    client.int("FAIRLOCK.ACQUIRE k a");
    client.assert_error("FAIRLOCK.RELEASE k b ALL", "NOTHELD");
    assert_eq!(client.holders("k"), "[a, 1]");
}

#[test]
fn with_a_token_only_that_acquisition_is_released() {
    let (_server, mut client) = Server::connected();
    let old = client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.RELEASE k a");
    let token = client.int("FAIRLOCK.ACQUIRE k a");
    client.assert_error(&format!("FAIRLOCK.RELEASE k a TOKEN {old}"), "NOTHELD");
    assert_eq!(client.holders("k"), "[a, 1]");
    let released = client.run(&format!("FAIRLOCK.RELEASE k a ALL TOKEN {token}"));
    assert_eq!(released, "0");
}

#[test]
fn a_partial_release_serves_no_waiter() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    client.assert_reply("FAIRLOCK.RELEASE k a", "1");
    assert!(!waiter.is_done());
    assert_eq!(client.holders("k"), "[a, 1]");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    assert!(waiter.int() > 0);
}
