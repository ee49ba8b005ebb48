//! Shows what no lock can promise on a server whose replicas or disk lag behind, and what fencing tokens and WAIT do
//! about it.

use fairlock_testing::{Client, Server, follow, wait_until};

/// A master and its replica, both with the lock held by `a`; and a's token.
fn held_on_both() -> (Server, Server, i64) {
    let (master, replica) = (Server::start(), Server::start());
    follow(&replica, &master);
    let mut client = master.connect();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.assert_reply("WAIT 1 0", "1");
    (master, replica, token)
}

/// From now on nothing reaches the replica any more.
fn cut_off(master: &Server, replica: &Server) {
    replica.signal("STOP");
    assert_eq!(master.connect().run("CLIENT KILL TYPE replica"), "1");
}

/// The master is lost, and its replica becomes one.
fn fail_over(master: Server, replica: &Server) -> Client {
    drop(master);
    replica.signal("CONT");
    let mut client = replica.connect();
    client.assert_reply("REPLICAOF NO ONE", "OK");
    client
}

/// a gives the lock up, b gets it and is told so. Its connection and its token.
fn passes_to_b(server: &Server, token: i64) -> (Client, i64) {
    let mut client = server.connect();
    client.assert_reply(&format!("FAIRLOCK.RELEASE k a TOKEN {token}"), "0");
    let token = client.int("FAIRLOCK.ACQUIRE k b LEASE 600000");
    (client, token)
}

/// c gets the lock as soon as the lease of a ends, which holds it only by this server's data. Returns c's token.
fn passes_to_c(client: &mut Client) -> i64 {
    assert_eq!(client.holders("k"), "[a, 1]");
    client.run("PEXPIRE k 500");
    client.int("FAIRLOCK.ACQUIRE k c LEASE 600000")
}

#[test]
fn a_failover_that_loses_writes_gives_the_lock_to_a_second_owner_with_a_greater_token() {
    let (master, replica, token) = held_on_both();
    cut_off(&master, &replica);
    let (_, of_b) = passes_to_b(&master, token);
    let mut client = fail_over(master, &replica);
    let of_c = passes_to_c(&mut client);
    // Now b and c both believe to hold the lock; a store that has seen the token of c refuses b.
    assert!(of_c > of_b);
    client.assert_error("FAIRLOCK.RELEASE k b", "NOTHELD");
}

#[test]
fn an_owner_that_wait_has_confirmed_is_the_only_one_after_the_failover() {
    let (master, replica, token) = held_on_both();
    let mut b = master.connect();
    b.assert_reply(&format!("FAIRLOCK.RELEASE k a TOKEN {token}"), "0");
    let of_b = b.int("FAIRLOCK.ACQUIRE k b LEASE 600000");
    b.assert_reply("WAIT 1 0", "1");
    // Later changes may be lost.
    cut_off(&master, &replica);
    master.connect().run("FAIRLOCK.ACQUIRE k b LEASE 600000");
    let mut client = fail_over(master, &replica);
    client.assert_reply("FAIRLOCK.ACQUIRE k c NOWAIT", "(nil)");
    client.assert_reply(&format!("FAIRLOCK.RELEASE k b TOKEN {of_b}"), "0");
    assert!(client.int("FAIRLOCK.ACQUIRE k c NOWAIT") > of_b);
}

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

#[test]
fn a_restart_from_an_old_snapshot_gives_the_lock_to_a_second_owner_with_a_greater_token() {
    let (server, mut client) = Server::connected();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.assert_reply("SAVE", "OK");
    let (_, of_b) = passes_to_b(&server, token);
    drop(client);
    let server = server.kill_and_restart();
    assert!(passes_to_c(&mut server.connect()) > of_b);
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

#[test]
fn wait_after_renew_tells_the_holder_of_a_session_that_its_master_is_cut_off() {
    let (master, replica) = (Server::start(), Server::start());
    follow(&replica, &master);
    let mut client = master.connect();
    client.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
    client.assert_reply("FAIRLOCK.RENEW k a", "600000");
    client.assert_reply("WAIT 1 0", "1");
    replica.while_stopped(|| {
        client.assert_reply("FAIRLOCK.RENEW k a", "600000");
        client.assert_reply("WAIT 1 100", "0");
    });
    client.assert_reply("WAIT 1 0", "1");
}
