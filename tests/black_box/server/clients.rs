//! What is done to connections: CLIENT commands, subscriptions, RESET.

use fairlock_testing::{Server, Wire, wait_until};

use crate::scene::QUEUE;

/// Sends an ACQUIRE on a bare connection and waits until it is blocked.
fn block(server: &Server, wire: &mut Wire, command: &str) {
    let before = server.blocked();
    wire.send(command);
    wait_until(command, || server.blocked() == before + 1);
}

#[test]
fn a_killed_waiter_has_left_before_the_next_command_however_it_was_killed() {
    let (server, mut client) = Server::connected_with(&["--hz", "1"]);
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.run("ACL SETUSER ann on nopass ~* +@all");
    let behind = server.block("FAIRLOCK.ACQUIRE k z");
    for how in ["ID", "ADDR", "old", "USER"] {
        let mut wire = server.wire("AUTH ann x");
        assert_eq!(wire.line(), "+OK");
        block(&server, &mut wire, "FAIRLOCK.ACQUIRE k b");
        assert_eq!(client.run(QUEUE), "[z, b]");
        let line = client.run(&format!("CLIENT LIST ID {}", wire.id));
        let address = line.split(" addr=").nth(1).expect("an address");
        let address = address.split(' ').next().expect("an address");
        let kill = match how {
            "ID" => format!("CLIENT KILL ID {}", wire.id),
            "ADDR" => format!("CLIENT KILL ADDR {address}"),
            "old" => format!("CLIENT KILL {address}"),
            _ => "CLIENT KILL USER ann".to_owned(),
        };
        let killed = client.run(&kill);
        assert!(["1", "OK"].contains(&killed.as_str()), "{how}: {killed}");
        assert_eq!(client.run(QUEUE), "[z]", "{how}");
        assert_eq!(wire.line(), "");
    }
    assert!(!behind.is_done());
}

#[test]
fn a_queue_whose_receivers_are_killed_one_after_the_other_stays_in_order() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    let mut waiters: Vec<_> = (0..6)
        .map(|n| server.block(&format!("FAIRLOCK.ACQUIRE k w{n} LEASE 600000")))
        .collect();
    // Three are handed the lock and killed before they can be told, all in one step.
    assert_eq!(
        client.at_once(&[
            "FAIRLOCK.RELEASE k a",
            &format!("CLIENT KILL ID {}", waiters[0].id),
            "FAIRLOCK.RELEASE k w0",
            &format!("CLIENT KILL ID {}", waiters[1].id),
            &format!("CLIENT KILL ID {}", waiters[2].id)
        ]),
        "[0, 1, 0, 1, 1]"
    );
    assert!(waiters.remove(3).int() > 0);
    assert_eq!(client.holders("k"), "[w3, 1]");
    assert_eq!(client.run(QUEUE), "[w4, w5]");
}

#[test]
fn client_unblock_gives_the_place_up_and_those_behind_move_up() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    for (how, expected) in [
        ("", "$-1"),
        (" TIMEOUT", "$-1"),
        (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        let mut wire = Wire::new(server.port);
        block(&server, &mut wire, "FAIRLOCK.ACQUIRE k b WAIT 600000");
        let behind = server.block("FAIRLOCK.ACQUIRE k c");
        let unblock = format!("CLIENT UNBLOCK {}{how}", wire.id);
        client.assert_reply(&unblock, "1");
        client.assert_reply("FAIRLOCK.QUEUE k", "[[c, blocked, -1, 1]]");
        assert_eq!(wire.line(), expected, "{how}");
        // Once is enough: it does not block any more, and its connection goes on.
        client.assert_reply(&unblock, "0");
        wire.send("PING");
        assert_eq!(wire.line(), "+PONG");
        behind.disconnect();
        wait_until("c has left", || client.run("FAIRLOCK.QUEUE k") == "[]");
    }
}

#[test]
fn client_unblock_during_a_hand_off_strands_no_waiter() {
    for how in ["ERROR", "TIMEOUT"] {
        let (server, mut client) = Server::connected();
        client.int("FAIRLOCK.ACQUIRE k a");
        let mut wire = Wire::new(server.port);
        block(&server, &mut wire, "FAIRLOCK.ACQUIRE k b LEASE 600000");
        let behind = server.block("FAIRLOCK.ACQUIRE k c");
        client.at_once(&[
            "FAIRLOCK.RELEASE k a",
            &format!("CLIENT UNBLOCK {} {how}", wire.id),
        ]);
        // The reply to b is true: either b holds the lock, or the next waiter does.
        let reply = wire.line();
        if reply.starts_with(':') {
            assert_eq!(client.holders("k"), "[b, 1]");
            client.assert_reply("FAIRLOCK.RELEASE k b", "0");
        } else {
            assert!(
                ["$-1", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"].contains(&reply.as_str()),
                "{reply}"
            );
        }
        assert!(behind.int() > 0);
        assert_eq!(client.holders("k"), "[c, 1]");
        // Exactly one reply.
        wire.send("PING");
        assert_eq!(wire.line(), "+PONG");
    }
}

/// Some servers (Valkey) do not block such a connection. It must not be told nil then, as if the time were up. Others
/// block it.
#[test]
fn a_connection_with_subscriptions_waits_or_is_told_why_it_cannot() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let mut wire = server.wire("HELLO 3\nSUBSCRIBE channel");
    let (list, unblock) = (
        format!("CLIENT LIST ID {}", wire.id),
        format!("CLIENT UNBLOCK {}", wire.id),
    );
    for wait in ["", " WAIT 600000"] {
        wire.send("ECHO again");
        wire.until("again");
        wire.send(&format!("FAIRLOCK.ACQUIRE k b{wait}"));
        wait_until("the command has run", || {
            client.run(&list).contains(" cmd=fairlock.acquire ")
        });
        let is_blocked = client.run(&unblock) == "1";
        let expected = if is_blocked {
            "_"
        } else {
            "-ERR the server does not let this connection wait (it may have subscriptions): \
             use ENQUEUE or another connection"
        };
        assert_eq!(wire.line(), expected);
        client.assert_reply("FAIRLOCK.QUEUE k", "[]");
    }
    // Requests that do not wait work.
    wire.send("FAIRLOCK.ACQUIRE k b NOWAIT\nFAIRLOCK.ACQUIRE k b ENQUEUE");
    assert_eq!(wire.line(), "_");
    assert_eq!(wire.line(), "*2");
    assert_eq!(wire.line(), ":1");
}

#[test]
fn with_replies_off_the_lock_is_taken_all_the_same() {
    let (server, mut client) = Server::connected();
    let mut wire = server.wire("CLIENT REPLY OFF\nFAIRLOCK.ACQUIRE k b");
    wait_until("b holds", || client.holders("k") == "[b, 1]");
    client.run("FAIRLOCK.BREAK k");
    client.int("FAIRLOCK.ACQUIRE k a");
    block(&server, &mut wire, "FAIRLOCK.ACQUIRE k b");
    client.int("FAIRLOCK.RELEASE k a");
    assert_eq!(client.holders("k"), "[b, 1]");
    // A client without a reply is not gone: it keeps the lock.
    wire.send("CLIENT REPLY ON\nFAIRLOCK.RELEASE k b");
    assert_eq!(wire.line(), "+OK");
    assert_eq!(wire.line(), ":0");
}

#[test]
fn reset_keeps_the_connections_session_and_identity() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k * SESSION LEASE 600000");
    client.run("SELECT 3");
    client.int("FAIRLOCK.ACQUIRE k * SESSION LEASE 600000");
    client.assert_reply("RESET", "RESET");
    client.assert_has("FAIRLOCK.INFO k", "session, 1");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    // It is still the same connection, in database 0 again.
    client.assert_reply("FAIRLOCK.RELEASE k *", "0");
    assert!(waiter.int() > 0);
    drop(client);
    let mut other = server.connect();
    other.run("SELECT 3");
    wait_until("it is free", || other.run("EXISTS k") == "0");
}
