//! A panic of the module, which should never happen: no client waits for ever, and no queue is lost.
//!
//! A debug build panics where the owner of a command is named after a point of the code.
#![cfg(debug_assertions)]

use fairlock_testing::{Blocked, Server, Wire, wait_until};

const INTERNAL: &str = "(error) ERR internal error, see the server's log";

fn owner(point: &str) -> String {
    format!("fairlock-test-panics:{point}")
}

#[test]
fn a_panic_in_a_step_loses_no_place_in_the_queue() {
    for point in ["before joining", "after joining"] {
        let point = point.replace(' ', "-");
        let (server, mut client) = Server::connected();
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        let first = server.block("FAIRLOCK.ACQUIRE k b");
        client.run("FAIRLOCK.ACQUIRE k c ENQUEUE");
        let third = server.block("FAIRLOCK.ACQUIRE k d");
        let panics = owner(&point);
        client.assert_reply(&format!("FAIRLOCK.ACQUIRE k {panics} ENQUEUE"), INTERNAL);
        client.run(&format!("FAIRLOCK.CANCEL k {panics}"));
        assert_eq!(
            client.run("FAIRLOCK.LOCKS").matches("name, k").count(),
            1,
            "it is known as before"
        );
        let queue = client.run("FAIRLOCK.QUEUE k");
        assert!(
            queue.starts_with("[[b, blocked, -1, 1], [c, polling, "),
            "{queue}"
        );
        assert!(queue.ends_with(", [d, blocked, -1, 1]]"), "{queue}");
        client.assert_reply("FAIRLOCK.RELEASE k a", "0");
        assert!(first.int() > 0);
        client.assert_reply("FAIRLOCK.RELEASE k b", "0");
        client.int("FAIRLOCK.ACQUIRE k c ENQUEUE");
        client.assert_reply("FAIRLOCK.RELEASE k c", "0");
        assert!(third.int() > 0);
        client.assert_reply("FAIRLOCK.RELEASE k d", "0");
        client.assert_reply("KEYS *", "[]");
        let log = server.log();
        assert!(log.contains("panic in a command"), "{log}");
        assert!(log.contains("panicked at src/fault.rs"), "{log}");
    }
}

#[test]
fn a_client_that_was_to_be_blocked_is_answered_once() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let mut wire = Wire::new(server.port);
    for point in ["before-joining", "after-joining"] {
        wire.send(&format!("FAIRLOCK.ACQUIRE k {}\nECHO next", owner(point)));
        assert_eq!(wire.line(), "-ERR internal error, see the server's log");
        assert_eq!(wire.line(), "$4");
        assert_eq!(wire.line(), "next");
        assert_eq!(server.blocked(), 0);
    }
    // The place that the second has by then keeps no other waiting, and its lock is not handed to the connection, which
    // waits for another one.
    client.int("FAIRLOCK.ACQUIRE other a LEASE 600000");
    wire.send("FAIRLOCK.ACQUIRE other c");
    wait_until("it waits", || server.blocked() == 1);
    let waiter = server.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    assert!(waiter.int() > 0);
    client.assert_reply("FAIRLOCK.QUEUE k", "[]");
    assert_eq!(server.blocked(), 1);
    assert_eq!(server.count("lease_ends"), 0);
}

#[test]
fn a_waiter_that_a_panic_has_cost_its_place_is_told() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let loses = owner("out-of-the-queue");
    let waiter = server.block(&format!("FAIRLOCK.ACQUIRE k {loses}"));
    client.assert_reply("FAIRLOCK.RELEASE k a", INTERNAL);
    assert_eq!(waiter.reply(), INTERNAL);
}

#[test]
fn a_panic_in_a_reply_is_replied_as_an_error() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let receiver = owner("in-a-reply");
    let waiter = server.block(&format!("FAIRLOCK.ACQUIRE k {receiver}"));
    let next = server.block("FAIRLOCK.ACQUIRE k b");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    let (reply, waiter) = waiter.reply_and_client();
    assert_eq!(reply, INTERNAL);
    // The connection is as good as before.
    let waiter = Blocked::send_on(waiter, "PING");
    assert_eq!(waiter.reply(), "PONG");
    // It was told that it has nothing, so the lock goes on at once, and not when the lease ends.
    assert!(next.int() > 0);
    assert_eq!(client.holders("k"), "[b, 1]");
    assert_eq!(server.count("lease_ends"), 0);
    assert!(server.log().contains("panic in a reply"));
}
