//! A replica only follows; one that becomes the master takes every lock up where it stood.

use fairlock_testing::{Client, Listener, Server, follow, have_changed_roles, wait_until};

use super::replication::same_keys;
use crate::scene::{AOF, DEADLINES, QUEUE};

/// Milliseconds.
pub const LONG_TURN: &[&str] = &["--fairlock.turn", "60000"];
pub const SHORT_TURN: &[&str] = &["--fairlock.turn", "100"];

pub fn pair(options: &[&str]) -> (Server, Server) {
    let (master, replica) = (Server::with(options), Server::with(options));
    follow(&replica, &master);
    (master, replica)
}

pub fn promote(replica: &Server) -> Client {
    let mut client = replica.connect();
    client.assert_reply("REPLICAOF NO ONE", "OK");
    client
}

/// Begins to hand the master's role over, as soon as the master knows the replica to be there. Another command comes in
/// the same moment.
pub fn fail_over_behind(command: &str, master: &mut Client, replica: &Server) {
    let begin = format!("FAILOVER TO 127.0.0.1 {}", replica.port);
    wait_until("it begins", || {
        master.run_many([command, &begin]).pop() == Some(redis::Value::Okay)
    });
}

/// Waits until the server's clock is past an instant.
pub fn wait_past(client: &mut Client, instant: i64) {
    wait_until("the time is over", || client.now() > instant);
}

#[test]
fn a_lock_that_was_free_or_expired_while_there_was_no_master_goes_to_the_head() {
    let (old, new) = pair(LONG_TURN);
    let mut client = old.connect();
    // The turn of q is running.
    client.int("FAIRLOCK.ACQUIRE free a");
    client.run("FAIRLOCK.ACQUIRE free q ENQUEUE");
    client.int("FAIRLOCK.RELEASE free a");
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE PATIENCE 600000");
    let _waiter = old.block("FAIRLOCK.ACQUIRE k b");
    client.run("PEXPIRE k 300");
    let end = client.int("PEXPIRETIME k");
    same_keys(&old, &new);
    drop(old);
    let listeners = ["{free}:q", "{k}:p"]
        .map(|name| Listener::new(new.port, &format!("redisson_lock__channel:{name}")));
    wait_past(&mut new.connect(), end);
    let mut client = promote(&new);
    for listener in listeners {
        assert_eq!(listener.message(), "0");
    }
    // Those behind them do not overtake.
    client.assert_reply("FAIRLOCK.ACQUIRE free c NOWAIT", "(nil)");
    client.int("FAIRLOCK.ACQUIRE free q ENQUEUE");
    let waiter = new.block("FAIRLOCK.ACQUIRE k b");
    client.assert_reply(QUEUE, "[p, b]");
    assert!(client.int("FAIRLOCK.ACQUIRE k p ENQUEUE") > token);
    assert!(!waiter.is_done());
    client.int("FAIRLOCK.RELEASE k p");
    assert!(waiter.int() > token);
}

#[test]
fn an_owner_whose_deadline_passed_in_a_failover_finds_its_place() {
    // The grace of the server's own start is over at once.
    let (old, new) = pair(&["--fairlock.turn", "1"]);
    let mut client = old.connect();
    // What stands in the keys is the end of the lease, and the patience.
    // At once, so that this lease does not end.
    client.at_once(&[
        "FAIRLOCK.ACQUIRE k a LEASE 600",
        "FAIRLOCK.ACQUIRE k p ENQUEUE PATIENCE 1",
        "FAIRLOCK.ACQUIRE k q ENQUEUE PATIENCE 600000",
        "FAIRLOCK.RENEW k a LEASE 600000",
    ]);
    client.assert_reply(QUEUE, "[p, q]");
    let deadline = client.int("ZSCORE redisson_lock_timeout:{k} p");
    same_keys(&old, &new);
    drop(old);
    wait_past(&mut new.connect(), deadline);
    new.connect().run("CONFIG SET fairlock.turn 60000");
    let mut client = promote(&new);
    client.int("FAIRLOCK.RELEASE k a");
    assert!(client.int("FAIRLOCK.ACQUIRE k p ENQUEUE") > 0);
    client.assert_reply(QUEUE, "[q]");
}

#[test]
fn waiters_that_died_with_their_master_cost_one_turn() {
    let (old, new) = pair(SHORT_TURN);
    let mut client = old.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let _dead =
        ["d", "e"].map(|owner| old.block(&format!("FAIRLOCK.ACQUIRE k {owner} PATIENCE 1")));
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    same_keys(&old, &new);
    drop(old);
    let mut client = promote(&new);
    let waiter = new.block("FAIRLOCK.ACQUIRE k b");
    client.assert_reply(QUEUE, "[d, e, b]");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > 0);
    client.assert_reply(QUEUE, "[]");
    client.assert_reply(DEADLINES, "[]");
}

#[test]
fn a_session_ends_with_its_master_and_the_lock_with_its_lease() {
    let (old, new) = pair(&[]);
    let mut holder = old.connect();
    holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
    same_keys(&old, &new);
    let mut client = promote(&new);
    follow(&old, &new);
    let end = client.int("PEXPIRETIME k");
    let waiter = new.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    // The server that it is connected to no longer decides.
    let kill = format!("CLIENT KILL ID {}", holder.id);
    assert_eq!(old.connect().run(&kill), "1");
    old.connect().run("PING");
    assert_eq!(client.holders("k"), "[a, 1]");
    assert_eq!(client.int("PEXPIRETIME k"), end);
    // The server that it is at now does not renew a shortened lease either.
    let cut = client.at_once(&["PEXPIRE k 1000", "PEXPIRETIME k"]);
    let end = cut.trim_matches(['[', ']']).rsplit(", ").next();
    let end: i64 = end.and_then(|end| end.parse().ok()).expect("an instant");
    assert!(waiter.int() > 0);
    assert!(client.now() >= end);
    same_keys(&new, &old);
}

#[test]
fn a_master_that_is_one_again_does_not_renew_the_sessions_it_had() {
    let (old, new) = pair(&[]);
    let mut holder = old.connect();
    holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
    let waiter = old.block("FAIRLOCK.ACQUIRE k b");
    same_keys(&old, &new);
    promote(&new);
    follow(&old, &new);
    waiter.assert_start("(error) UNBLOCKED ");
    let mut client = promote(&old);
    let waiter = old.block("FAIRLOCK.ACQUIRE k b");
    assert_eq!(client.holders("k"), "[a, 1]");
    // By the lease, though the connection is open.
    client.run("PEXPIRE k 1000");
    assert!(waiter.int() > 0);
    holder.assert_reply("PING", "PONG");
}

#[test]
fn tokens_grow_in_both_directions_between_clocks_that_differ() {
    for flush in [false, true] {
        let servers = [5, 0].map(|ahead| {
            let server = Server::with_movable_clock(&[]);
            server.set_clock(ahead);
            server
        });
        follow(&servers[1], &servers[0]);
        let (mut last, mut master) = (0, 0);
        for _ in 0..5 {
            let (old, new) = (&servers[master], &servers[1 - master]);
            let mut client = old.connect();
            for _ in 0..3 {
                let token = client.int("FAIRLOCK.ACQUIRE k a");
                assert!(token > last, "{token} after {last}, flush: {flush}");
                last = token;
                client.run("FAIRLOCK.RELEASE k a");
            }
            same_keys(old, new);
            fail_over_behind("PING", &mut client, new);
            have_changed_roles(old, new);
            master = 1 - master;
            if flush {
                new.connect().run("FLUSHALL");
            }
        }
    }
}

#[test]
fn tokens_grow_after_a_restart_and_a_flush_though_they_were_ahead_of_the_clock() {
    let (server, mut client) = Server::connected_with(AOF);
    // A replica that is promoted gives tokens ahead of its clock.
    client.run("REPLICAOF 127.0.0.1 1");
    client.run("REPLICAOF NO ONE");
    let last = client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.RELEASE k a");
    assert_eq!(client.int("GET fairlock_token:{k}"), last);
    let server = server.kill_and_restart();
    let mut client = server.connect();
    client.run("FLUSHALL");
    assert!(client.int("FAIRLOCK.ACQUIRE k a") > last);
}

#[test]
fn a_queue_in_a_database_that_was_swapped_is_known_to_the_new_master() {
    let (master, replica) = pair(&[]);
    let mut client = master.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    assert_eq!(client.int("WAIT 1 0"), 1);
    client.run("SWAPDB 0 1");
    assert_eq!(client.int("WAIT 1 0"), 1);
    let mut client = promote(&replica);
    client.run("SELECT 1");
    wait_until("it is found", || {
        client.run("FAIRLOCK.LOCKS").starts_with("[[name, k, ")
    });
}

#[test]
fn a_new_master_goes_on_with_shared_holders_and_their_leases() {
    let (old, new) = pair(&[]);
    let mut client = old.connect();
    let token = client.int("FAIRLOCK.ACQUIRE k a SHARED 2 LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED 2 LEASE 3000");
    same_keys(&old, &new);
    drop(old);
    let mut client = promote(&new);
    // The lease of b ends here.
    let next = new.block("FAIRLOCK.ACQUIRE k c SHARED 2 LEASE 600000");
    assert!(next.int() > token);
    client.assert_reply("HMGET k a b", "[1, (nil)]");
}
