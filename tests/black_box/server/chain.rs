//! A replica of a replica: what it is sent, and that it only follows.

use fairlock_testing::{Listener, Server, follow, wait_until};

use super::promotion::{LONG_TURN, SHORT_TURN, pair, wait_past};
use super::replication::same_keys;
use crate::scene::QUEUE;

fn chain(options: &[&str]) -> (Server, Server, Server) {
    let (master, middle) = pair(options);
    let last = Server::with(options);
    follow(&last, &middle);
    (master, middle, last)
}

#[test]
fn a_replica_does_nothing_when_leases_turns_and_patience_run_out() {
    let (master, middle, last) = chain(SHORT_TURN);
    let mut client = master.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE PATIENCE 600000");
    let _waiter = master.block("FAIRLOCK.ACQUIRE k b");
    // The turn of q is running, r was woken with it.
    client.int("FAIRLOCK.ACQUIRE free a");
    client.run("FAIRLOCK.ACQUIRE free q ENQUEUE");
    client.run("FAIRLOCK.ACQUIRE free r ENQUEUE");
    // Long enough for a busy machine to stop the master.
    client.run("CONFIG SET fairlock.turn 7000");
    client.at_once(&["PEXPIRE k 7000", "FAIRLOCK.RELEASE free a"]);
    let turn_ends = client.now() + 7000;
    // Later turns are short again.
    client.run("CONFIG SET fairlock.turn 100");
    let keys = client.int("DBSIZE");
    for replica in [&middle, &last] {
        let free = "LRANGE redisson_lock_queue:{free} 0 -1";
        same_keys(&master, replica);
        let mut reader = replica.connect();
        wait_until("it has all", || {
            reader.int("DBSIZE") == keys && reader.run(free) == "[q, r]"
        });
    }
    master.while_stopped(|| {
        for replica in [&middle, &last] {
            let mut reader = replica.connect();
            let end = reader.int("PEXPIRETIME k").max(turn_ends);
            wait_past(&mut reader, end + 300);
            reader.assert_reply(QUEUE, "[p, b]");
            reader.assert_reply("LRANGE redisson_lock_queue:{free} 0 -1", "[q, r]");
            reader.assert_reply("ZCARD redisson_lock_timeout:{free}", "2");
            // The expired lock is there until the master deletes it.
            assert_eq!(reader.int("DBSIZE"), keys);
            assert_eq!(replica.info("stats", "expired_keys"), "0");
        }
    });
    // Then the lock goes on.
    for replica in [&middle, &last] {
        let mut reader = replica.connect();
        wait_until("b has the lock", || reader.holders("k") == "[b, 1]");
        same_keys(&master, replica);
    }
}

#[test]
fn a_wake_up_reaches_subscribers_at_every_replica_once() {
    let (master, middle, last) = chain(LONG_TURN);
    let channel = "redisson_lock__channel:{k}:p";
    let listeners = [&master, &middle, &last].map(|server| Listener::new(server.port, channel));
    let mut client = master.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
    client.int("FAIRLOCK.RELEASE k a");
    // Later requests stay behind it.
    client.run(&format!("PUBLISH {channel} end"));
    for listener in listeners {
        assert_eq!(listener.message(), "0");
        assert_eq!(listener.message(), "end");
    }
}
