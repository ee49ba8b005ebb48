//! `FAIRLOCK.RENEW`.

use fairlock_testing::Server;
use redis::Value;

#[test]
fn renewing_replies_the_lease_now_set() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 10000");
    client.assert_reply("FAIRLOCK.RENEW k a LEASE 60000", "60000");
    assert!((50_000..=60_000).contains(&client.int("PTTL k")));
    client.assert_reply("FAIRLOCK.RENEW k a", "30000");
    assert!((20_000..=30_000).contains(&client.int("PTTL k")));
    assert_eq!(client.holders("k"), "[a, 1]");
}

#[test]
fn only_the_holder_can_renew() {
    let (_server, mut client) = Server::connected();
    client.assert_error("FAIRLOCK.RENEW k a", "NOTHELD");
    client.assert_reply("EXISTS k", "0");
    client.int("FAIRLOCK.ACQUIRE k a LEASE 5000");
    client.assert_error("FAIRLOCK.RENEW k b", "NOTHELD");
    assert!(client.int("PTTL k") <= 5_000);
}

#[test]
fn a_renewed_lease_holds_up_the_waiters() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    // One command behind the other, so that the short lease does not end in between.
    let replies = client.run_many([
        "FAIRLOCK.RENEW k a LEASE 1000",
        "FAIRLOCK.RENEW k a LEASE 60000",
    ]);
    assert_eq!(replies, [Value::Int(1000), Value::Int(60_000)]);
    // The old lease's end comes and goes.
    client.int("FAIRLOCK.ACQUIRE other x");
    client.assert_reply("FAIRLOCK.ACQUIRE other y WAIT 1200", "(nil)");
    assert!(!waiter.is_done());
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > 0);
}
