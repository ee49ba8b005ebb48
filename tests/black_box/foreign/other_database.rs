//! Others move or copy a lock's keys to another database: what comes there is noticed.

use fairlock_testing::{Client, Listener, Server};

/// Moves or copies all keys of a lock to another database, in a transaction or not.
fn take_to_another_database(client: &mut Client, how: &str, in_transaction: bool) {
    if in_transaction {
        client.run("MULTI");
    }
    for key in [
        "redisson_lock_queue:{k}",
        "redisson_lock_timeout:{k}",
        "k",
        "redisson_lock_shared:{k}",
    ] {
        let to = if how == "COPY" {
            format!("{key} DB")
        } else {
            String::new()
        };
        // Valkey 8.1 leaves a client that copies in a transaction in the other database.
        client.run("SELECT 0");
        client.run(&format!("{how} {key} {to} 1").replace("  ", " "));
    }
    if in_transaction {
        client.run("EXEC");
    }
}

#[test]
fn a_queue_that_comes_from_another_database_is_served_there() {
    for (how, in_transaction) in [
        ("MOVE", false),
        ("MOVE", true),
        ("COPY", false),
        ("COPY", true),
    ] {
        println!("{how}, in a transaction: {in_transaction}");
        let (server, mut client) = Server::connected_with(&["--fairlock.turn", "600000"]);
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        client.run("FAIRLOCK.ACQUIRE k b ENQUEUE PATIENCE 600000");
        take_to_another_database(&mut client, how, in_transaction);
        let listener = Listener::new(server.port, "redisson_lock__channel:{k}:b");
        client.run("SELECT 1");
        client.assert_reply("DEL k", "1");
        assert_eq!(listener.message(), "0");
    }
}

#[test]
fn shared_holders_that_come_from_another_database_hold_there() {
    for (how, in_transaction) in [("MOVE", true), ("COPY", false), ("COPY", true)] {
        println!("{how}, in a transaction: {in_transaction}");
        let (_server, mut client) = Server::connected();
        for owner in ["a", "b"] {
            client.int(&format!("FAIRLOCK.ACQUIRE k {owner} SHARED LEASE 600000"));
        }
        take_to_another_database(&mut client, how, in_transaction);
        client.run("SELECT 1");
        client.assert_reply("FAIRLOCK.RELEASE k a", "0");
        client.assert_reply("FAIRLOCK.RELEASE k b", "0");
        client.assert_reply("EXISTS k", "0");
    }
}
