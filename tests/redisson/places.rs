//! What a turn, a dead waiter and a deleted queue cost the others, step by step: natively no more than where the
//! scripts run as Lua.

use std::time::{Duration, Instant};

use fairlock_testing::redisson::{Driver, NEWEST};
use fairlock_testing::{Client, wait_until};

use crate::conformance::{nothing_is_left, queue, wait_for_queue};
use crate::hand::{ACQUIRED, Hand, PATIENCE};
use crate::interception::Interception;
use crate::scenarios::{self, SETTINGS};

/// Long enough for a client that comes at once.
const TURN: Duration = Duration::from_secs(1);
/// Long enough for a living client on a busy machine.
const AMPLE_TURN: Duration = Duration::from_secs(3);
/// No test waits for its end.
const LONG_TURN: Duration = Duration::from_mins(1);

/// Some time passes, by the server's clock.
fn pass(client: &mut Client, time: Duration) {
    client.run(&format!("SET hourglass 1 PX {}", time.as_millis()));
    wait_until("the hourglass has run out", || {
        client.run("EXISTS hourglass") == "0"
    });
}

#[test]
fn a_waiter_that_joins_during_a_turn_keeps_its_place() {
    Interception::each(|interception| {
        let server = interception.server_with_turn(AMPLE_TURN);
        let mut hand = Hand::of(&server);
        assert_eq!(hand.lock("jvm:101", PATIENCE), ACQUIRED);
        assert_ne!(hand.lock("jvm:102", PATIENCE), ACQUIRED);
        hand.unlock("jvm:101");
        assert_ne!(hand.lock("jvm:103", PATIENCE), ACQUIRED);
        assert_eq!(hand.lock("jvm:102", PATIENCE), ACQUIRED);
        // An acquisition subtracts the owner's patience from the deadlines behind it.
        pass(&mut hand.client, AMPLE_TURN * 3 / 2);
        assert_ne!(hand.lock("jvm:104", PATIENCE), ACQUIRED);
        assert_eq!(hand.queue(), "[jvm:103, jvm:104]");
    });
}

#[test]
fn a_waiter_behind_a_blocked_one_keeps_its_place() {
    Interception::each(|interception| {
        let server = interception.server(&[]);
        let mut hand = Hand::of(&server);
        assert_eq!(hand.lock("jvm:101", PATIENCE), ACQUIRED);
        for (owner, patience) in [
            ("jvm:102", 600_000),
            ("jvm:103", 900_000),
            ("jvm:104", 1_200_000),
        ] {
            assert_ne!(hand.lock(owner, patience), ACQUIRED);
        }
        let blocked = server.block("FAIRLOCK.ACQUIRE k blocked PATIENCE 300000");
        assert_ne!(hand.lock("jvm:105", 600_000), ACQUIRED);
        let everybody = "[jvm:102, jvm:103, jvm:104, blocked, jvm:105]";
        assert_eq!(hand.queue(), everybody);
        let next = [
            ("jvm:101", "jvm:102", 600_000),
            ("jvm:102", "jvm:103", 900_000),
            ("jvm:103", "jvm:104", 1_200_000),
        ];
        for (holder, next, patience) in next {
            hand.unlock(holder);
            assert_eq!(hand.lock(next, patience), ACQUIRED);
        }
        assert_eq!(hand.queue(), "[blocked, jvm:105]");
        hand.unlock("jvm:104");
        assert!(blocked.int() > 0);
        assert_eq!(hand.queue(), "[jvm:105]");
        if interception.is_on() {
            let left = hand.patience_left("jvm:105");
            assert!(left > 0, "{left}");
        }
    });
}

#[test]
fn a_dead_waiter_costs_no_more_than_its_own_patience() {
    Interception::each(|interception| {
        let server = interception.server_with_turn(LONG_TURN);
        let [living] = Driver::several([NEWEST], &server, &[]);
        let mut hand = Hand::of(&server);
        // Not over before all wait.
        assert_eq!(hand.lock_for("jvm:1", PATIENCE, 8000), ACQUIRED);
        assert_ne!(hand.lock("dead:1", 200), ACQUIRED);
        let waiter = queue(&mut hand.client, &living, "1", "lock k");
        wait_until("the lease is over", || {
            hand.client.run("HEXISTS k jvm:1") == "0"
        });
        let over = Instant::now();
        assert_eq!(waiter.get(), "true");
        let took = over.elapsed();
        assert!(took < LONG_TURN / 2, "{took:?}");
    });
}

#[test]
fn the_waiters_of_a_dead_client_do_not_come_back_into_a_deleted_queue() {
    Interception::each(|interception| {
        let server = interception.server_with_turn(scenarios::TURN);
        let dead = Driver::several([NEWEST; 2], &server, SETTINGS);
        let mut hand = Hand::of(&server);
        let removals = [
            "DEL k redisson_lock_queue:{k} redisson_lock_timeout:{k}",
            "FLUSHALL",
        ];
        for (driver, removal) in dead.iter().zip(removals) {
            assert_eq!(hand.lock("jvm:1", PATIENCE), ACQUIRED);
            for thread in ["1", "2", "3"] {
                queue(&mut hand.client, driver, thread, "lock k");
            }
            driver.kill();
            hand.client.run(removal);
            assert_eq!(hand.try_lock("jvm:2"), ACQUIRED, "{removal}");
            wait_for_queue(&mut hand.client, "k", 0);
            pass(&mut hand.client, TURN);
            assert_eq!(hand.queue(), "[]", "{removal}");
            hand.unlock("jvm:2");
            nothing_is_left(&mut hand.client);
        }
    });
}
