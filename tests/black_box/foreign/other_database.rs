//! Others move or copy a lock's keys to another database, or change two databases for each other: what comes there is
//! noticed.

use fairlock_testing::{Blocked, Client, Listener, Server, wait_until};

use crate::commands::session::renewed;

/// Moves or copies all keys of a lock to another database, one after the other or in a transaction.
fn take_to_another_database(client: &mut Client, how: &str, lock: &str) {
    for prefix in ["queue:", "timeout:", "", "shared:"] {
        let key = match prefix {
            "" => lock.to_owned(),
            _ => format!("redisson_lock_{prefix}{{{lock}}}"),
        };
        // Valkey 8.1 leaves a client that copies in a transaction in the other database.
        client.run("SELECT 0");
        client.run(&match how {
            "COPY" => format!("COPY {key} {key} DB 1"),
            _ => format!("MOVE {key} 1"),
        });
    }
}

#[test]
fn locks_that_come_from_another_database_go_on_there() {
    for (how, in_transaction) in [("MOVE", true), ("COPY", false), ("COPY", true)] {
        println!("{how}, in a transaction: {in_transaction}");
        let (server, mut client) = Server::connected_with(&["--fairlock.turn", "600000"]);
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        client.run("FAIRLOCK.ACQUIRE k b ENQUEUE PATIENCE 600000");
        for owner in ["a", "b"] {
            client.int(&format!("FAIRLOCK.ACQUIRE s {owner} SHARED LEASE 600000"));
        }
        if in_transaction {
            client.run("MULTI");
        }
        take_to_another_database(&mut client, how, "k");
        take_to_another_database(&mut client, how, "s");
        if in_transaction {
            client.run("EXEC");
        }
        let listener = Listener::new(server.port, "redisson_lock__channel:{k}:b");
        client.run("SELECT 1");
        client.assert_reply("DEL k", "1");
        assert_eq!(listener.message(), "0");
        client.assert_reply("FAIRLOCK.RELEASE s a", "0");
        client.assert_reply("FAIRLOCK.RELEASE s b", "0");
        client.assert_reply("EXISTS s", "0");
    }
}

#[test]
fn after_a_swap_waiters_ask_again_and_find_their_places() {
    let server = Server::start();
    let (mut zero, mut one) = (server.connect(), server.connect());
    one.run("SELECT 1");
    for client in [&mut zero, &mut one] {
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    }
    zero.int("FAIRLOCK.ACQUIRE other a LEASE 600000");
    let mut waits = vec![server.block("FAIRLOCK.ACQUIRE k b")];
    let mut client = server.connect();
    client.run("SELECT 1");
    waits.push(Blocked::send_on(client, "FAIRLOCK.ACQUIRE k c"));
    wait_until("both wait", || server.blocked() == 2);
    let mut third = server.connect();
    third.run("SELECT 3");
    third.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let elsewhere = Blocked::send_on(third, "FAIRLOCK.ACQUIRE k d");
    wait_until("three wait", || server.blocked() == 3);
    let mut session = server.connect();
    session.int("FAIRLOCK.ACQUIRE s a SESSION LEASE 3600");
    session.int("FAIRLOCK.ACQUIRE t a SHARED SESSION LEASE 3600");
    zero.assert_reply("SWAPDB 1 0", "OK");
    for wait in waits {
        wait.assert_start("(error) UNBLOCKED ");
    }
    assert!(!elsewhere.is_done());
    // The queues have gone with the locks. A newcomer is behind.
    for (client, owner) in [(&mut one, "b"), (&mut zero, "c")] {
        client.assert_start("FAIRLOCK.ACQUIRE k new ENQUEUE", "[2, ");
        client.assert_start(&format!("FAIRLOCK.ACQUIRE k {owner} ENQUEUE"), "[1, ");
        client.assert_reply("FAIRLOCK.RELEASE k a", "0");
        client.int(&format!("FAIRLOCK.ACQUIRE k {owner} ENQUEUE"));
    }
    // Locks go with their keys, those of sessions too.
    assert_eq!(one.holders("other"), "[a, 1]");
    for lock in ["s", "t"] {
        renewed(&mut one, lock, 1);
        assert_eq!(one.holders(lock), "[a, 1]");
        zero.assert_reply(&format!("FAIRLOCK.HOLDERS {lock}"), "[]");
    }
    drop(session);
    one.wait_for("EXISTS s t", "0");
}
