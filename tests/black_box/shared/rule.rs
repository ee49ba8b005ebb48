//! Which owners may hold the lock together, and which waiter is served next.

use fairlock_testing::Server;

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
