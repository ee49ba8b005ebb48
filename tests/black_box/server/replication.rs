//! Replicas hold the same keys, with the module and without it.

use fairlock_testing::{Client, Server, follow, wait_until};

/// What the keys of lock `k` hold; the instants at which they expire, not how long they still have.
pub fn dump(client: &mut Client) -> Vec<String> {
    [
        "HGETALL k",
        "PEXPIRETIME k",
        "LRANGE redisson_lock_queue:{k} 0 -1",
        "ZRANGE redisson_lock_timeout:{k} 0 -1 WITHSCORES",
        "HGETALL redisson_lock_shared:{k}",
        "PEXPIRETIME redisson_lock_shared:{k}",
        "GET fairlock_token:{k}",
        "PEXPIRETIME fairlock_token:{k}",
        "DBSIZE",
    ]
    .iter()
    .map(|command| client.run(command))
    .collect()
}

/// Waits until a replica has the same lock.
pub fn same_keys(master: &Server, replica: &Server) {
    let (mut one, mut two) = (master.connect(), replica.connect());
    wait_until("the replica has what the master has", || {
        dump(&mut one) == dump(&mut two)
    });
}

#[test]
fn a_replica_shows_the_lock_and_refuses_to_change_it_also_if_it_takes_writes() {
    for read_only in ["yes", "no"] {
        let master = Server::start();
        let replica = Server::with(&["--replica-read-only", read_only]);
        follow(&replica, &master);
        let mut client = master.connect();
        client.int("FAIRLOCK.ACQUIRE shared r SHARED 3 LEASE 600000");
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        let _waiter = master.block("FAIRLOCK.ACQUIRE k b PATIENCE 600000");
        same_keys(&master, &replica);
        let mut there = replica.connect();
        there.assert_start("FAIRLOCK.INFO k", "[owner, a, holds, 1, ");
        there.assert_start("FAIRLOCK.QUEUE k", "[[b, polling, ");
        there.assert_start("FAIRLOCK.HOLDERS shared", "[[r, 1, ");
        for command in [
            "ACQUIRE k c",
            "ACQUIRE free c",
            "RELEASE k a",
            "RENEW k a",
            "CANCEL k b",
            "BREAK k",
        ] {
            there.assert_error(&format!("FAIRLOCK.{command}"), "READONLY");
        }
        if read_only == "no" {
            there.assert_reply("SET other value", "OK");
            there.assert_reply("DEL k", "1");
            there.assert_reply("LRANGE redisson_lock_queue:{k} 0 -1", "[b]");
            there.assert_reply("EXISTS k", "0");
        }
    }
}

#[test]
fn wait_covers_a_grant_on_its_own_connection_and_elsewhere_after_a_renewal() {
    let (master, replica) = (Server::start(), Server::start());
    follow(&replica, &master);
    let mut other = master.connect();
    other.int("FAIRLOCK.ACQUIRE k a");
    let waiter = master.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    // The replica has all that was written until now, the waiter's place among it, and nothing later.
    other.assert_reply("SET x 1", "OK");
    other.assert_reply("WAIT 1 0", "1");
    let mut stranger = master.connect();
    replica.while_stopped(|| {
        other.assert_reply("FAIRLOCK.RELEASE k a", "0");
        let (token, mut holder) = waiter.reply_and_client();
        assert!(token.parse::<i64>().is_ok(), "{token}");
        holder.assert_reply("WAIT 1 50", "0");
        // Before it renews, WAIT may say 1: it has written nothing that could be waited for.
        stranger.assert_reply("FAIRLOCK.RENEW k b LEASE 600000", "600000");
        stranger.assert_reply("WAIT 1 50", "0");
    });
}
