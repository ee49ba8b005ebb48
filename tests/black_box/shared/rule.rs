//! Which owners may hold the lock together, and which waiter is served next.

use fairlock_testing::{Server, wait_until};

#[test]
fn readers_share_and_a_writer_waits_for_all_of_them() {
    let (server, mut client) = Server::connected();
    for reader in ["a", "b", "c"] {
        client.int(&format!("FAIRLOCK.ACQUIRE k {reader} SHARED"));
    }
    let writer = server.block("FAIRLOCK.ACQUIRE k w");
    for reader in ["a", "b"] {
        client.assert_reply(&format!("FAIRLOCK.RELEASE k {reader}"), "0");
        assert!(!writer.is_done());
    }
    client.assert_reply("FAIRLOCK.RELEASE k c", "0");
    assert!(writer.int() > 0);
    assert_eq!(client.holders("k"), "[w, 1]");
}

#[test]
fn a_row_of_readers_is_served_in_one_step() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k w");
    let readers: Vec<_> = (0..5)
        .map(|n| server.block(&format!("FAIRLOCK.ACQUIRE k r{n} SHARED LEASE 600000")))
        .collect();
    let second = server.block("FAIRLOCK.ACQUIRE k v LEASE 600000");
    let late = server.block("FAIRLOCK.ACQUIRE k late SHARED LEASE 600000");
    // In one transaction nothing can come between the release and the look.
    let replies = client.at_once(&["FAIRLOCK.RELEASE k w", "HLEN redisson_lock_shared:{k}"]);
    assert_eq!(replies, "[0, 5]");
    let tokens: Vec<i64> = readers.into_iter().map(|reader| reader.int()).collect();
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert!(!second.is_done() && !late.is_done());
    for n in 0..5 {
        client.run(&format!("FAIRLOCK.RELEASE k r{n}"));
    }
    assert!(second.int() > tokens[4]);
    client.run("FAIRLOCK.RELEASE k v");
    late.int();
}

#[test]
fn a_reader_never_overtakes_a_waiting_writer() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a SHARED");
    let writer = server.block("FAIRLOCK.ACQUIRE k w");
    client.assert_reply("FAIRLOCK.ACQUIRE k b SHARED NOWAIT", "(nil)");
    client.assert_reply("FAIRLOCK.ACQUIRE k b SHARED WAIT 1", "(nil)");
    let reader = server.block("FAIRLOCK.ACQUIRE k c SHARED");
    client.run("FAIRLOCK.RELEASE k a");
    writer.int();
    assert!(!reader.is_done());
    // The writer in front of it gives up: the reader fits, and is served at once.
    let other = server.block("FAIRLOCK.ACQUIRE k d SHARED");
    client.run("FAIRLOCK.RELEASE k w");
    reader.int();
    other.int();
}

#[test]
fn a_writer_that_leaves_the_queue_lets_the_readers_behind_it_in() {
    let (server, mut client) = Server::connected();
    for leaves in ["cancel", "disconnect", "timeout"] {
        client.int("FAIRLOCK.ACQUIRE k a SHARED LEASE 600000");
        let writer = match leaves {
            "timeout" => server.block("FAIRLOCK.ACQUIRE k w WAIT 300"),
            _ => server.block("FAIRLOCK.ACQUIRE k w"),
        };
        let reader = server.block("FAIRLOCK.ACQUIRE k b SHARED LEASE 600000");
        match leaves {
            "cancel" => assert_eq!(client.run("FAIRLOCK.CANCEL k w"), "1"),
            "disconnect" => writer.disconnect(),
            _ => assert_eq!(writer.reply(), "(nil)"),
        }
        assert!(reader.int() > 0, "{leaves}");
        client.assert_reply("FAIRLOCK.BREAK k", "1");
    }
}

#[test]
fn there_are_never_more_holders_than_the_limit() {
    let (server, mut client) = Server::connected();
    for n in 0..3 {
        client.int(&format!("FAIRLOCK.ACQUIRE k s{n} SHARED 3 NOWAIT"));
    }
    client.assert_reply("FAIRLOCK.ACQUIRE k s3 SHARED 3 NOWAIT", "(nil)");
    // It tolerates any number, they do not.
    client.assert_reply("FAIRLOCK.ACQUIRE k r SHARED NOWAIT", "(nil)");
    let next = server.block("FAIRLOCK.ACQUIRE k s3 SHARED 3");
    let after = server.block("FAIRLOCK.ACQUIRE k s4 SHARED 3");
    client.run("FAIRLOCK.RELEASE k s1");
    next.int();
    assert!(!after.is_done());
    assert_eq!(client.int("HLEN redisson_lock_shared:{k}"), 3);
    client.run("FAIRLOCK.RELEASE k s0");
    after.int();
}

#[test]
fn each_holder_tolerates_what_it_said() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a SHARED 3");
    client.int("FAIRLOCK.ACQUIRE k b SHARED 2");
    client.assert_reply("FAIRLOCK.ACQUIRE k c SHARED NOWAIT", "(nil)");
    assert!(
        client
            .run("FAIRLOCK.INFO k")
            .ends_with("holders, 2, limit, 2]")
    );
    // The one that tolerates two at most leaves: now three fit.
    client.run("FAIRLOCK.RELEASE k b");
    client.int("FAIRLOCK.ACQUIRE k c SHARED NOWAIT");
    client.int("FAIRLOCK.ACQUIRE k d SHARED 9 NOWAIT");
    client.assert_reply("FAIRLOCK.ACQUIRE k e SHARED NOWAIT", "(nil)");
}

#[test]
fn a_limit_of_one_is_exclusive() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a SHARED 1");
    client.assert_reply("FAIRLOCK.ACQUIRE k b SHARED NOWAIT", "(nil)");
    client.assert_reply("KEYS *", "[k]");
    client.int("FAIRLOCK.ACQUIRE k a");
    assert_eq!(client.holders("k"), "[a, 2]");
}

#[test]
fn polling_readers_and_writers_are_served_in_their_turn() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k w");
    client.assert_start("FAIRLOCK.ACQUIRE k a SHARED ENQUEUE", "[1, ");
    client.assert_start("FAIRLOCK.ACQUIRE k b SHARED ENQUEUE", "[2, ");
    let blocked = server.block("FAIRLOCK.ACQUIRE k c SHARED");
    client.run("FAIRLOCK.RELEASE k w");
    // It is the turn of a: neither b nor c goes before.
    client.assert_start("FAIRLOCK.ACQUIRE k b SHARED ENQUEUE", "[2, ");
    assert!(!blocked.is_done());
    client.int("FAIRLOCK.ACQUIRE k a SHARED ENQUEUE");
    client.int("FAIRLOCK.ACQUIRE k b SHARED ENQUEUE");
    blocked.int();
    assert_eq!(client.int("HLEN redisson_lock_shared:{k}"), 3);
}

#[test]
fn a_blocked_reader_can_ask_as_a_writer_instead() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k w");
    let first = server.block("FAIRLOCK.ACQUIRE k a SHARED");
    let second = server.block("FAIRLOCK.ACQUIRE k a");
    assert!(first.reply().starts_with("(error) TAKENOVER"));
    wait_until("one waits", || server.blocked() == 1);
    assert!(client.run("FAIRLOCK.QUEUE k").ends_with("-1, 1]]"));
    client.run("FAIRLOCK.RELEASE k w");
    second.int();
    client.assert_reply("EXISTS redisson_lock_shared:{k}", "0");
}
