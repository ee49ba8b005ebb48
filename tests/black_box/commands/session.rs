//! Locks that live as long as a connection.
//!
//! A server that gets no processor for two thirds of a lease cannot renew it: leases that are to be
//! renewed are long enough for a busy machine.

use fairlock_testing::{Client, Server, follow, wait_until};

use crate::scene::AOF;

/// Waits until the server has renewed the lease a number of times.
pub fn renewed(client: &mut Client, key: &str, times: usize) {
    for _ in 0..times {
        let end = client.int(&format!("PEXPIRETIME {key}"));
        wait_until("the lease is renewed", || {
            client.int(&format!("PEXPIRETIME {key}")) > end
        });
    }
}

#[test]
fn it_is_freed_however_the_connection_ends() {
    for (how, timeout) in [
        ("closed", "0"),
        ("killed", "0"),
        ("QUIT", "0"),
        ("silent", "1"),
    ] {
        println!("{how}");
        let (server, mut holder) = Server::connected_with(&["--timeout", timeout]);
        holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
        let waiter = server.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
        match how {
            "closed" => drop(holder),
            "killed" => {
                let kill = format!("CLIENT KILL ID {}", holder.id);
                server.connect().assert_reply(&kill, "1");
            }
            "QUIT" => holder.assert_reply("QUIT", "OK"),
            // The server closes it by itself.
            _ => (),
        }
        assert!(waiter.int() > 0);
        assert_eq!(server.connect().holders("k"), "[b, 1]");
        assert_eq!(server.count("session_locks"), 0);
    }
}

#[test]
fn many_on_one_connection_are_all_renewed() {
    let (server, mut client) = Server::connected();
    let mut holder = server.connect();
    holder.run_many((0..3_000).map(|n| format!("FAIRLOCK.ACQUIRE k{n} a SESSION LEASE 9000")));
    // A session that was not renewed is gone by the third renewal of the last one.
    renewed(&mut client, "k2999", 3);
    renewed(&mut client, "k0", 1);
    assert_eq!(client.int("DBSIZE"), 3_000);
}

#[test]
fn other_holders_and_connections_do_not_end_it() {
    let (server, mut client) = Server::connected();
    let mut holder = server.connect();
    holder.run_many(["FAIRLOCK.ACQUIRE k a SESSION LEASE 3600"; 2]);
    let mut other = server.connect();
    other.int("FAIRLOCK.ACQUIRE other b SESSION");
    other.assert_reply("FAIRLOCK.ACQUIRE k b NOWAIT SESSION", "(nil)");
    // It takes its own hold with it.
    other.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 3600");
    drop(other);
    client.wait_for("EXISTS other", "0");
    renewed(&mut client, "k", 1);
    assert_eq!(client.holders("k"), "[a, 2]");
}

/// By whoever ends that: then the session neither ends nor renews the next hold.
#[test]
fn it_ends_with_its_hold() {
    for way in ["FAIRLOCK.RELEASE k a", "FAIRLOCK.BREAK k"] {
        let (server, mut client) = Server::connected();
        let mut holder = server.connect();
        holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
        client.int(way);
        assert_eq!(server.count("session_locks"), 0);
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        drop(holder);
        let mut last = server.connect();
        last.int("FAIRLOCK.ACQUIRE other b SESSION");
        drop(last);
        client.wait_for("EXISTS other", "0");
        assert_eq!(client.holders("k"), "[a, 1]");
        client.run("PEXPIRE k 200");
        client.wait_for("EXISTS k", "0");
    }
}

#[test]
fn a_request_that_waits_is_bound_when_it_is_served() {
    let (server, mut client) = Server::connected();
    for lock in ["k", "l"] {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} a LEASE 600000"));
    }
    let waiter = server.block("FAIRLOCK.ACQUIRE k b SESSION LEASE 3600");
    let mut poller = server.connect();
    let ask = "FAIRLOCK.ACQUIRE l p ENQUEUE SESSION LEASE 3600";
    poller.assert_start(ask, "[1, ");
    assert_eq!(server.count("session_locks"), 0);
    client.int("FAIRLOCK.RELEASE k a");
    client.int("FAIRLOCK.RELEASE l a");
    poller.int(ask);
    assert_eq!(server.count("session_locks"), 2);
    renewed(&mut client, "k", 1);
    drop((waiter, poller));
    client.wait_for("EXISTS k l", "0");
}

#[test]
fn its_lease_cannot_be_made_too_short_to_renew() {
    let (server, mut client) = Server::connected();
    let mut holder = server.connect();
    holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 60000");
    // The reply is the lease that is set now.
    client.assert_reply("FAIRLOCK.RENEW k a LEASE 10", "60000");
    client.assert_reply("FAIRLOCK.RENEW k a LEASE 90000", "90000");
    client.int("FAIRLOCK.ACQUIRE k a LEASE 10");
    assert!(client.int("PTTL k") > 50_000);
}

/// Before it renews, the server asks itself by a write whether it has the replicas that it must have.
#[test]
fn a_renewal_takes_nothing_out_of_the_queue() {
    let (server, mut client) = Server::connected();
    let mut holder = server.connect();
    holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 3600");
    let score = client.int("PEXPIRETIME k") + 60_000;
    // The second owner's name is empty: the last word of its commands is.
    for owner in ["b", ""] {
        client.run(&format!("ZADD redisson_lock_timeout:{{k}} {score} {owner}"));
        client.run(&format!("RPUSH redisson_lock_queue:{{k}} {owner}"));
    }
    renewed(&mut client, "k", 1);
    for owner in ["b", ""] {
        let kept = client.run(&format!("ZSCORE redisson_lock_timeout:{{k}} {owner}"));
        assert_eq!(kept, score.to_string(), "{owner:?}");
    }
}

#[test]
fn another_holder_of_the_key_is_not_renewed() {
    for road in [
        "DEL k",
        "RENAME k elsewhere",
        "FLUSHALL",
        "COPY other k REPLACE",
    ] {
        let (server, mut client) = Server::connected();
        let mut holder = server.connect();
        client.run("HSET other b 1");
        holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 300");
        client.run(road);
        client.run("HSET k b 1");
        client.run("PEXPIRE k 200");
        client.run("PEXPIRE elsewhere 200");
        client.wait_for("EXISTS k", "0");
        client.wait_for("EXISTS elsewhere", "0");
        wait_until(road, || server.count("session_locks") == 0);
    }
}

#[test]
fn after_a_restart_it_ends_with_its_lease_unless_its_holder_comes_back() {
    let (server, mut holder) = Server::connected_with(AOF);
    holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
    let token = holder.int("FAIRLOCK.ACQUIRE l a SESSION LEASE 600000");
    let end = holder.int("PEXPIRETIME k");
    let server = server.kill_and_restart();
    let (mut client, mut holder) = (server.connect(), server.connect());
    client.assert_reply("FAIRLOCK.ACQUIRE k b NOWAIT", "(nil)");
    let again = holder.int("FAIRLOCK.ACQUIRE l a SESSION ONCE LEASE 3600");
    assert_eq!(again, token);
    assert_eq!(client.int("PEXPIRETIME k"), end);
    // Cut short, it is not renewed either.
    client.run("PEXPIRE k 1000");
    assert!(client.int("FAIRLOCK.ACQUIRE k b WAIT 20000") > 0);
    renewed(&mut client, "l", 1);
    drop(holder);
    client.wait_for("EXISTS l", "0");
}

#[test]
fn renewals_are_replicated() {
    let (server, replica) = (Server::start(), Server::start());
    follow(&replica, &server);
    let mut client = replica.connect();
    let mut holder = server.connect();
    holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 3600");
    wait_until("it is there", || client.run("EXISTS k") == "1");
    renewed(&mut client, "k", 1);
    drop(holder);
    client.wait_for("EXISTS k", "0");
}
