//! The server's wall clock is set ahead or back while locks are held and waited for.

use std::time::{Duration, Instant};

use fairlock_testing::{Server, wait_until};

use crate::scene::AOF;

const HOUR: i64 = 3600;

#[test]
fn a_lease_ends_when_the_server_says_so_after_a_step_ahead() {
    let server = Server::with_movable_clock(&[]);
    let mut client = server.connect();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 7200000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    server.set_clock(HOUR);
    // Half of the lease is over; the lock is held as long as the key is.
    wait_until("the step is noticed", || client.int("PTTL k") < 3_700_000);
    client.run("PING");
    assert!(!waiter.is_done());
    assert_eq!(client.holders("k"), "[a, 1]");
    server.set_clock(3 * HOUR);
    assert!(waiter.int() > token);
}

#[test]
fn a_wait_takes_as_long_as_it_says_whatever_the_clock_does() {
    for step in [HOUR, -HOUR] {
        let server = Server::with_movable_clock(&[]);
        let mut client = server.connect();
        client.int("FAIRLOCK.ACQUIRE k a LEASE 86400000");
        let start = Instant::now();
        let waiter = server.block("FAIRLOCK.ACQUIRE k b WAIT 1000");
        server.set_clock(step);
        assert_eq!(waiter.reply(), "(nil)");
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_secs(1), "{elapsed:?}");
        client.assert_reply("FAIRLOCK.QUEUE k", "[]");
    }
}

#[test]
fn a_polling_waiter_outlives_a_step_ahead_and_a_dead_one_loses_its_turn_after_a_step_back() {
    let server = Server::with_movable_clock(&[]);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 86400000");
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE PATIENCE 60000");
    client.run("FAIRLOCK.ACQUIRE k dead ENQUEUE");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    server.set_clock(HOUR);
    wait_until("the step is noticed", || client.int("PTTL k") < 83_000_000);
    client.int("FAIRLOCK.RELEASE k a");
    // Its patience of 60 seconds has not run out, although the clock was set an hour ahead.
    assert!(client.int("FAIRLOCK.ACQUIRE k p ENQUEUE") > 0);
    client.run("CONFIG SET fairlock.turn 500");
    client.int("FAIRLOCK.RELEASE k p");
    server.set_clock(-HOUR);
    assert!(waiter.int() > 0);
}

#[test]
fn a_session_outlives_a_step_ahead_that_leaves_it_less_than_a_third_of_its_lease() {
    for how in ["SESSION", "SHARED SESSION"] {
        let server = Server::with_movable_clock(&[]);
        let mut client = server.connect();
        client.int(&format!("FAIRLOCK.ACQUIRE k a {how} LEASE 90000"));
        let first = client.int("PEXPIRETIME k");
        server.set_clock(65);
        wait_until("it is renewed", || {
            let end = client.int("PEXPIRETIME k");
            assert!(end > 0, "{how}: it has ended");
            end > first + 50_000
        });
    }
}

#[test]
fn tokens_grow_over_steps_of_the_clock() {
    let server = Server::with_movable_clock(&[]);
    let mut client = server.connect();
    let mut last = 0;
    // After a step back the token is kept in a key, which the second round deletes.
    for step in [0, HOUR, 2 * HOUR, -HOUR, -2 * HOUR, 0] {
        server.set_clock(step);
        for lose in [false, true] {
            let token = client.int("FAIRLOCK.ACQUIRE k a NOWAIT");
            assert!(token > last, "{token} after {last} at {step}");
            last = token;
            client.run("FAIRLOCK.RELEASE k a");
            if lose {
                client.run("DEL fairlock_token:{k}");
            }
        }
    }
}

#[test]
fn tokens_grow_if_the_clock_is_set_back_before_the_first_one_after_a_restart() {
    let server = Server::with_movable_clock(&[]);
    let token = server.connect().int("FAIRLOCK.ACQUIRE k a");
    assert_eq!(server.connect().run("FAIRLOCK.RELEASE k a"), "0");
    let server = server.kill_and_restart();
    server.set_clock(-HOUR);
    let next = server.connect().int("FAIRLOCK.ACQUIRE k b");
    assert!(next > token, "{next} after {token}");
}

/// Without a waiter, and with one who joins when a holder leaves.
#[test]
fn a_new_shared_holder_after_a_step_back_and_a_restart_gets_a_greater_token() {
    let server = Server::with_movable_clock(AOF);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a SHARED 2 LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED 3 LEASE 600000");
    client.run("FAIRLOCK.RELEASE k a");
    client.int("FAIRLOCK.ACQUIRE k a SHARED 2 LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE other a SHARED LEASE 600000");
    let mut last = client.int("FAIRLOCK.ACQUIRE other b SHARED LEASE 600000");
    server.set_clock(-5);
    let server = server.kill_and_restart();
    let mut client = server.connect();
    let waiter = server.block("FAIRLOCK.ACQUIRE k c SHARED 2 LEASE 600000");
    wait_until("it waits", || client.run("FAIRLOCK.QUEUE k") != "[]");
    client.run("FAIRLOCK.RELEASE k a");
    for token in [waiter.int(), client.int("FAIRLOCK.ACQUIRE other c SHARED")] {
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[test]
fn a_session_is_renewed_after_a_step_back() {
    let server = Server::with_movable_clock(&[]);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 6000");
    server.set_clock(-HOUR);
    wait_until("the step is noticed", || client.int("PTTL k") > 3_000_000);
    // The expiry is beyond what a renewal gives, and is left alone; one that a client cuts short is renewed.
    client.run("PEXPIRE k 5900");
    let end = client.int("PEXPIRETIME k");
    wait_until("the lease is renewed", || client.int("PEXPIRETIME k") > end);
    assert_eq!(client.holders("k"), "[a, 1]");
}
