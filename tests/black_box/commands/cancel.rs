//! `FAIRLOCK.CANCEL`.

use fairlock_testing::Server;

#[test]
fn a_cancelled_request_replies_nil_and_leaves_no_trace() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    client.assert_reply("FAIRLOCK.CANCEL k b", "1");
    assert_eq!(waiter.reply(), "(nil)");
    client.assert_reply("FAIRLOCK.CANCEL k b", "0");
    client.assert_reply(
        "EXISTS redisson_lock_queue:{k} redisson_lock_timeout:{k}",
        "0",
    );
}

#[test]
fn who_is_not_in_the_queue_is_not_cancelled() {
    let (_server, mut client) = Server::connected();
    client.assert_reply("FAIRLOCK.CANCEL k a", "0");
    client.int("FAIRLOCK.ACQUIRE k a");
    client.assert_reply("FAIRLOCK.CANCEL k a", "0");
    assert_eq!(client.holders("k"), "[a, 1]");
}

#[test]
fn cancelling_from_the_middle_keeps_the_order() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    for owner in ["b", "c", "d", "e"] {
        client.run(&format!("FAIRLOCK.ACQUIRE k {owner} ENQUEUE"));
    }
    client.assert_reply("FAIRLOCK.CANCEL k c", "1");
    client.assert_reply("LRANGE redisson_lock_queue:{k} 0 -1", "[b, d, e]");
    client.assert_reply("FAIRLOCK.CANCEL k e", "1");
    client.assert_reply("LRANGE redisson_lock_queue:{k} 0 -1", "[b, d]");
    client.assert_reply("ZCARD redisson_lock_timeout:{k}", "2");
}

#[test]
fn cancelling_a_head_whose_turn_it_is_serves_the_next() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let waiter = server.block("FAIRLOCK.ACQUIRE k c");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(!waiter.is_done());
    client.assert_reply("FAIRLOCK.CANCEL k b", "1");
    assert!(waiter.int() > 0);
}
