//! Hashes that are not locks: no command of this module changes them.

use fairlock_testing::{Server, wait_until};

const NOT_A_LOCK: &str = "(error) NOTALOCK ";

#[test]
fn a_hash_that_is_no_lock_is_refused_and_stays_as_it_is() {
    let (_server, mut client) = Server::connected();
    for data in [
        "name Ann",
        "a 0",
        "a -1",
        "a 1.5",
        "a 01",
        "a many",
        "a 1 b 1",
        "a 1 b 1 c 1",
        "name Ann visits 7",
        // A lock with its token, to which another program has added its data.
        "a 1  42 name Ann",
    ] {
        client.run(&format!("HSET k {data}"));
        client.run("PEXPIRE k 600000");
        let before = client.run("HGETALL k");
        let end = client.run("PEXPIRETIME k");
        for command in [
            "ACQUIRE k a",
            "ACQUIRE k a NOWAIT",
            "ACQUIRE k a SHARED",
            "ACQUIRE k z SHARED NOWAIT",
            "ACQUIRE k z ENQUEUE",
            "ACQUIRE k name WAIT 60000",
            "RELEASE k a",
            "RELEASE k a ALL",
            "RELEASE k name",
            "RELEASE k z",
            "RENEW k a",
            "RENEW k z",
            "BREAK k",
            "BREAK k FORCE",
        ] {
            let reply = client.run(&format!("FAIRLOCK.{command}"));
            assert!(reply.starts_with(NOT_A_LOCK), "{data}, {command}: {reply}");
        }
        client.assert_reply("HGETALL k", &before);
        client.assert_reply("PEXPIRETIME k", &end);
        client.assert_reply("DBSIZE", "1");
        client.run("DEL k");
    }
}

#[test]
fn a_session_that_ends_deletes_no_other_data() {
    let (server, mut client) = Server::connected();
    let mut holder = server.connect();
    holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
    client.run("HSET k a data");
    drop(holder);
    wait_until("the session has ended", || {
        server.count("session_locks") == 0
    });
    client.assert_reply("HGET k a", "data");
}

#[test]
fn a_lock_without_an_expiry_is_broken_by_force_only() {
    let (server, mut client) = Server::connected();
    client.run("HSET k a 1");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    let reply = client.run("FAIRLOCK.BREAK k");
    assert!(
        reply.starts_with(NOT_A_LOCK) && reply.contains("FORCE"),
        "{reply}"
    );
    assert_eq!(client.holders("k"), "[a, 1]");
    client.assert_reply("FAIRLOCK.BREAK k FORCE", "1");
    assert!(waiter.int() > 0);
    client.assert_reply("FAIRLOCK.BREAK free FORCE", "0");
}

#[test]
fn a_hash_that_only_looks_like_a_lock_without_its_owner_is_left_alone() {
    let (_server, mut client) = Server::connected();
    let set: [&[u8]; 4] = [b"HSET", b"data", b"", b"42"];
    client.raw(&set).expect("set");
    for command in [
        "RELEASE data o",
        "ACQUIRE data o NOWAIT",
        "RENEW data o",
        "BREAK data FORCE",
    ] {
        client.assert_start(&format!("FAIRLOCK.{command}"), "(error) NOT");
        assert_eq!(client.run("HLEN data"), "1", "{command}");
    }
}
