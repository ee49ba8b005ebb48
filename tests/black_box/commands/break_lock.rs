//! `FAIRLOCK.BREAK`.

use fairlock_testing::Server;

#[test]
fn a_broken_lock_goes_to_the_next_waiter() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    client.assert_reply("FAIRLOCK.BREAK k", "1");
    assert!(waiter.int() > 0);
    client.assert_error("FAIRLOCK.RELEASE k a", "NOTHELD");
}
