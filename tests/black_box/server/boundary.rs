//! A master that must have a replica (`min-replicas-to-write`) and is cut off from it.

use fairlock_testing::{Server, follow, wait_until};

#[test]
fn a_master_that_must_have_a_replica_locks_nothing_without_one_but_still_hands_over() {
    let (master, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = master.block("FAIRLOCK.ACQUIRE k b");
    // At once, so that the lease does not end before.
    let both = ["PEXPIRE k 1000", "CONFIG SET min-replicas-to-write 1"];
    assert_eq!(client.at_once(&both), "[1, OK]");
    for command in ["ACQUIRE other c NOWAIT", "ACQUIRE k c", "RELEASE k a"] {
        client.assert_error(&format!("FAIRLOCK.{command}"), "NOREPLICAS");
    }
    // The server itself serves the waiter in the queue when the lease ends.
    assert!(waiter.int() > 0);
}

/// The replica is promoted elsewhere; the master that must have one is cut off from it, but not from the holders.
#[test]
fn a_session_ends_with_its_lease_on_a_master_that_must_have_a_replica_and_has_none() {
    let master = Server::with(&["--min-replicas-to-write", "1"]);
    let replica = Server::start();
    follow(&replica, &master);
    let mut client = master.connect();
    wait_until("the replica counts", || {
        client.run("SET {k}:mark 1") == "OK"
    });
    for ask in ["k a SESSION LEASE 1500", "s a SHARED SESSION LEASE 1500"] {
        client.int(&format!("FAIRLOCK.ACQUIRE {ask}"));
    }
    client.assert_reply("WAIT 1 0", "1");
    assert_eq!(replica.connect().run("REPLICAOF NO ONE"), "OK");
    for lock in ["k", "s"] {
        replica.block(&format!("FAIRLOCK.ACQUIRE {lock} b")).int();
    }
    wait_until("the sessions are over there, too", || {
        master.count("session_locks") == 0
    });
    client.assert_reply("EXISTS k s", "0");
    client.assert_error("FAIRLOCK.RENEW k a", "NOREPLICAS");
}

#[test]
fn a_session_goes_on_if_the_replicas_are_back_before_its_lease_ends() {
    let (_master, mut client) = Server::connected();
    for ask in ["k a SESSION LEASE 9000", "s a SHARED SESSION LEASE 9000"] {
        client.int(&format!("FAIRLOCK.ACQUIRE {ask}"));
    }
    client.run("CONFIG SET min-replicas-to-write 1");
    for lock in ["k", "s"] {
        wait_until("a renewal is overdue", || {
            client.int(&format!("PTTL {lock}")) < 5900
        });
    }
    client.run("CONFIG SET min-replicas-to-write 0");
    for lock in ["k", "s"] {
        wait_until("the lease is renewed", || {
            client.int(&format!("PTTL {lock}")) > 8000
        });
    }
}
