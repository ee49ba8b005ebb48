//! What users have reported over the years, step by step: what clocks, expiries, lost scores, turns and dead waiters
//! cost those that live. Natively no waiter loses its place. Where the scripts run as Lua, as on a plain server, a
//! client of Redisson does, and a waiter that is blocked in the server does not. `docs/redisson-issues.md` has the
//! issues' numbers.

use std::time::{Duration, Instant};

use fairlock_testing::{Client, Listener, Server, wait_until};

use crate::conformance::nothing_is_left;
use crate::hand::{ACQUIRED, Hand, PATIENCE};
use crate::interception::Interception;

/// Long enough for a client that comes at once.
const TURN: Duration = Duration::from_secs(1);
const USUAL_TURN: Duration = Duration::from_secs(5);
/// No test waits for its end.
const LONG_TURN: Duration = Duration::from_mins(1);
/// A lease that is not over before all wait, in milliseconds.
const LEASE: u64 = 5000;
/// Far more than a lease and a patience, in milliseconds.
const TEN_MINUTES: i64 = 600_000;

/// Does something without interception and with it, on a server with this turn.
fn each(turn: Duration, test: impl Fn(Interception, &Server, &mut Hand)) {
    Interception::each(|interception| {
        let server = interception.server_with_turn(turn);
        test(interception, &server, &mut Hand::of(&server));
    });
}

/// Some time passes, by the server's clock.
fn pass(client: &mut Client, time: Duration) {
    client.run(&format!("SET hourglass 1 PX {}", time.as_millis()));
    client.wait_for("EXISTS hourglass", "0");
}

/// A holder, and steps before a waiter joins and after it, by which only a client of Redisson loses its place, and only
/// where the scripts run as Lua, when the next one asks.
fn costs_no_place(before: impl Fn(&mut Hand), after: impl Fn(&mut Hand)) {
    Interception::each(|interception| {
        for blocks in [false, true] {
            let server = interception.server(&[]);
            let mut hand = Hand::of(&server);
            hand.takes("jvm:1");
            before(&mut hand);
            let _blocked = blocks.then(|| server.block("FAIRLOCK.ACQUIRE k waiter"));
            if !blocks {
                hand.waits(["waiter"]);
            }
            hand.ahead = 0;
            after(&mut hand);
            hand.ahead = 0;
            hand.waits(["next"]);
            let keeps_place = blocks || interception.is_on();
            let queue = ["[next]", "[waiter, next]"][usize::from(keeps_place)];
            assert_eq!(hand.queue(), queue, "blocked: {blocks}");
        }
    });
}

#[test]
fn a_waiter_ahead_that_leaves_costs_no_place() {
    // It adds a millisecond to the deadlines of all behind it, and takes ten minutes back.
    costs_no_place(
        |hand| assert_ne!(hand.lock("ahead", 1), ACQUIRED),
        |hand| assert_eq!(hand.leave("ahead", 600_000), "(nil)"),
    );
}

#[test]
fn a_client_whose_clock_is_ahead_costs_no_place() {
    costs_no_place(
        |_| (),
        |hand| {
            hand.ahead = TEN_MINUTES;
            assert_ne!(hand.try_lock("fast"), ACQUIRED);
        },
    );
}

#[test]
fn a_client_whose_clock_is_behind_costs_no_place() {
    costs_no_place(|hand| hand.ahead = -TEN_MINUTES, |_| ());
}

/// As by `expire()` on the lock, or by a multi-lock with a lease.
#[test]
fn an_expiry_set_on_the_queue_costs_no_place() {
    costs_no_place(
        |_| (),
        |hand| {
            for key in ["redisson_lock_queue:{k}", "redisson_lock_timeout:{k}"] {
                hand.client.run(&format!("PEXPIRE {key} 1"));
            }
            pass(&mut hand.client, Duration::from_millis(20));
        },
    );
}

#[test]
fn a_waiter_outlives_its_patience() {
    each(USUAL_TURN, |interception, _, hand| {
        assert_eq!(hand.lock_for("jvm:1", PATIENCE, LEASE), ACQUIRED);
        assert_ne!(hand.lock("waiter", 1), ACQUIRED);
        hand.renew("jvm:1");
        assert_ne!(hand.lock("waiter", 1), ACQUIRED);
        pass(&mut hand.client, Duration::from_millis(LEASE + 2));
        hand.waits(["next"]);
        let is_first = hand.queue() == "[waiter, next]";
        assert_eq!(is_first, interception.is_on());
    });
}

#[test]
fn a_dead_waiter_costs_no_more_than_its_own_patience() {
    each(LONG_TURN, |_, _, hand| {
        assert_eq!(hand.lock_for("jvm:1", PATIENCE, LEASE), ACQUIRED);
        assert_ne!(hand.lock("dead:1", 200), ACQUIRED);
        hand.waits(["living"]);
        wait_until("the lease is over", || {
            hand.client.run("HEXISTS k jvm:1") == "0"
        });
        let over = Instant::now();
        wait_until("it has the lock", || {
            hand.lock("living", PATIENCE) == ACQUIRED
        });
        let took = over.elapsed();
        assert!(took < LONG_TURN / 2, "{took:?}");
    });
}

/// From 3.32.0 on, Lua tells it to come back in 0 ms.
#[test]
fn a_waiter_behind_a_dead_head_is_told_to_ask_when_its_turn_is_over() {
    each(LONG_TURN, |interception, _, hand| {
        hand.takes("jvm:1");
        hand.waits(["dead:1", "living"]);
        hand.unlock("jvm:1");
        let told = hand.lock("living", PATIENCE);
        let sleep: i64 = told.parse().expect("a time");
        assert_eq!(sleep > 0, interception.is_on(), "{told}");
    });
}

/// No script is called then.
#[test]
fn the_next_is_woken_when_a_lease_ends_or_the_lock_is_deleted() {
    Interception::each(|interception| {
        for deletes in [false, true] {
            let server = interception.server_with_turn(LONG_TURN);
            let mut hand = Hand::of(&server);
            assert_eq!(hand.lock_for("jvm:1", PATIENCE, LEASE), ACQUIRED);
            hand.waits(["first", "second"]);
            hand.leave("first", PATIENCE);
            let woken = Listener::new(server.port, "redisson_lock__channel:{k}:second");
            if deletes {
                hand.client.run("DEL k");
            }
            wait_until("it is free", || hand.client.run("EXISTS k") == "0");
            if interception.is_on() {
                assert_eq!(woken.message(), "0");
            } else {
                pass(&mut hand.client, TURN);
                assert!(woken.is_quiet());
            }
        }
    });
}

/// The deadlines of all are lost, and later that of the head alone.
#[test]
fn waiters_whose_deadlines_are_lost_wait_once_and_hold_up_none() {
    each(TURN, |interception, _, hand| {
        hand.takes("jvm:1");
        let ask = |hand: &mut Hand| {
            hand.waits(["dead:1", "living"]);
        };
        ask(hand);
        hand.client.run("DEL redisson_lock_timeout:{k}");
        ask(hand);
        let once = "[dead:1, living]";
        assert_eq!(hand.queue() == once, interception.is_on());
        hand.client.run("ZREM redisson_lock_timeout:{k} dead:1");
        hand.unlock("jvm:1");
        if interception.is_on() {
            wait_until("it has the lock", || {
                hand.lock("living", PATIENCE) == ACQUIRED
            });
        } else {
            pass(&mut hand.client, TURN * 2);
            hand.waits(["living"]);
        }
    });
}

#[test]
fn dead_waiters_do_not_come_back_into_a_deleted_queue() {
    each(TURN, |_, _, hand| {
        for removal in [
            "DEL k redisson_lock_queue:{k} redisson_lock_timeout:{k}",
            "FLUSHALL",
        ] {
            hand.takes("jvm:1");
            hand.waits(["dead:1", "dead:2", "dead:3"]);
            hand.client.run(removal);
            assert_eq!(hand.try_lock("jvm:2"), ACQUIRED, "{removal}");
            wait_until("the queue is empty", || hand.queue() == "[]");
            pass(&mut hand.client, TURN);
            assert_eq!(hand.queue(), "[]", "{removal}");
            hand.unlock("jvm:2");
            nothing_is_left(&mut hand.client);
        }
    });
}
