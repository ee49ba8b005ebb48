//! Hand-off: every way in which a waiter becomes the holder.

use fairlock_testing::{Server, wait_until};

/// Stops the server while a waiter hangs up and the holder releases, so that both reach it in one iteration of the
/// event loop.
fn hang_up_while_released(server: &Server, release_first: bool) {
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = server.wire("FAIRLOCK.ACQUIRE k b LEASE 600000");
    wait_until("b waits", || {
        client.int("LLEN redisson_lock_queue:{k}") == 1
    });
    let behind = server.block("FAIRLOCK.ACQUIRE k c");
    // Connected before: the server accepts in one iteration and reads in the next.
    let mut releasing = server.wire("PING");
    client.run("PING");
    let (waiting, released) = (waiter.port(), releasing.port());
    let mut waiter = Some(waiter);
    let mut hang_up = || {
        drop(waiter.take());
        wait_until("it has hung up", || server.unread(waiting).1);
    };
    server.while_stopped(|| {
        if !release_first {
            hang_up();
        }
        releasing.send("FAIRLOCK.RELEASE k a");
        wait_until("it has released", || server.unread(released).0 > 0);
        if release_first {
            hang_up();
        }
    });
    assert!(behind.int() > 0);
    assert_eq!(client.holders("k"), "[c, 1]");
    client.assert_reply("FAIRLOCK.QUEUE k", "[]");
}

#[test]
fn a_waiter_that_hangs_up_as_the_lock_is_released_is_skipped() {
    let server = Server::start();
    for release_first in [true, false, true, false] {
        hang_up_while_released(&server, release_first);
        server.connect().run("DEL k");
    }
}

#[test]
fn a_waiter_that_says_quit_behind_its_request_keeps_the_lock() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    let mut waiter = server.wire("FAIRLOCK.ACQUIRE k b\nQUIT");
    wait_until("b waits", || {
        client.int("LLEN redisson_lock_queue:{k}") == 1
    });
    let behind = server.block("FAIRLOCK.ACQUIRE k c");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.token() > 0);
    assert_eq!(waiter.line(), "+OK");
    assert_eq!(waiter.line_if_open(), None);
    assert_eq!(client.holders("k"), "[b, 1]");
    assert!(!behind.is_done());
    client.int("FAIRLOCK.RELEASE k b");
    assert!(behind.int() > 0);
}

#[test]
fn a_receiver_killed_after_its_reply_was_made_and_before_it_was_written_passes_the_lock_on() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.ACQUIRE other a");
    let first = server.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    let second = server.block("FAIRLOCK.ACQUIRE k c");
    // Unblocked in the same iteration, the killer's next command runs before any reply is written.
    let kill = format!("CLIENT KILL ID {}", first.id);
    let _killer = server.wire(&format!("FAIRLOCK.ACQUIRE other b\n{kill}"));
    wait_until("the killer waits", || server.blocked() == 3);
    assert_eq!(
        client.at_once(&["FAIRLOCK.RELEASE k a", "FAIRLOCK.RELEASE other a"]),
        "[0, 0]"
    );
    assert!(second.int() > 0);
    first.assert_start("(error) not a reply");
    assert_eq!(client.holders("k"), "[c, 1]");
}
