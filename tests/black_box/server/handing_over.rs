//! Waiters that leave a queue while writes are paused for FAILOVER: the leaving is written, or the waiter is told that
//! its place is still its own.

use fairlock_testing::{Blocked, Client, Server, have_changed_roles, wait_until};

use super::promotion::{LONG_TURN, fail_over_behind, pair, wait_past};
use super::replication::same_keys;
use crate::scene::QUEUE;

const UNBLOCKED: &str = "(error) UNBLOCKED ";

/// A master that wants to hand over to its replica, which is stopped. `a` holds the lock `k`; `b`, which has
/// asked in some way, and `c` wait for it.
struct Scene {
    old: Server,
    new: Server,
    client: Client,
    /// When `b` had asked, by the server's clock.
    asked: i64,
}

fn in_the_pause(ask: &str) -> (Scene, Blocked, Blocked) {
    in_the_pause_with(600_000, ask)
}

/// As [`in_the_pause`], where the lease of `a` ends so many milliseconds after the pause has begun.
fn in_the_pause_with(lease: i64, ask: &str) -> (Scene, Blocked, Blocked) {
    let (old, new) = pair(LONG_TURN);
    let mut client = old.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let b = old.block(ask);
    let asked = client.now();
    let c = old.block("FAIRLOCK.ACQUIRE k c");
    same_keys(&old, &new);
    new.signal("STOP");
    // The replica cannot have this, and until it has, nothing may be written.
    fail_over_behind(&format!("PEXPIRE k {lease}"), &mut client, &new);
    let scene = Scene {
        old,
        new,
        client,
        asked,
    };
    (scene, b, c)
}

impl Scene {
    fn time_is_up(&mut self) {
        wait_until("the time is up", || self.client.now() > self.asked + LIMIT);
    }

    fn fails_over(&self) {
        self.new.signal("CONT");
        have_changed_roles(&self.old, &self.new);
    }

    /// The replica never comes to take over.
    fn gives_up(&mut self) {
        self.client.assert_reply("FAILOVER ABORT", "OK");
        self.new.signal("CONT");
    }

    /// At the new master `b` asks behind a newcomer.
    fn b_has_its_place(&self) {
        let mut client = self.new.connect();
        let _newcomer = self.new.block("FAIRLOCK.ACQUIRE k d");
        let b = self.new.block("FAIRLOCK.ACQUIRE k b");
        client.assert_reply(QUEUE, "[b, c, d]");
        client.assert_reply("FAIRLOCK.RELEASE k a", "0");
        assert!(b.int() > 0);
    }

    fn b_has_left(&mut self) {
        self.client.assert_reply(QUEUE, "[c]");
        same_keys(&self.old, &self.new);
    }
}

/// Milliseconds: not over before the pause begins.
const LIMIT: i64 = 6000;
const WITH_LIMIT: &str = "FAIRLOCK.ACQUIRE k b WAIT 6000";
const WITHOUT: &str = "FAIRLOCK.ACQUIRE k b";

#[test]
fn a_wait_that_runs_out_while_a_replica_takes_over_keeps_its_place() {
    let (mut scene, b, c) = in_the_pause(WITH_LIMIT);
    scene.time_is_up();
    assert!(!b.is_done());
    scene.fails_over();
    b.assert_start(UNBLOCKED);
    c.assert_start(UNBLOCKED);
    scene.b_has_its_place();
}

#[test]
fn a_wait_that_runs_out_in_a_failover_that_is_given_up_has_left_when_it_is_told() {
    let (mut scene, b, c) = in_the_pause(WITH_LIMIT);
    scene.time_is_up();
    assert!(!b.is_done());
    scene.gives_up();
    assert_eq!(b.reply(), "(nil)");
    assert_eq!(scene.old.count("timeouts"), 1);
    scene.b_has_left();
    assert!(!c.is_done());
}

#[test]
fn a_waiter_that_is_unblocked_keeps_its_place_whether_the_replica_takes_over_or_not() {
    for (how, gives_up) in [("TIMEOUT", false), ("ERROR", false), ("TIMEOUT", true)] {
        let (mut scene, b, c) = in_the_pause(WITHOUT);
        let unblock = format!("CLIENT UNBLOCK {} {how}", b.id);
        scene.client.assert_reply(&unblock, "1");
        b.assert_start(UNBLOCKED);
        if gives_up {
            scene.gives_up();
            let b = scene.old.block(WITHOUT);
            scene.client.assert_reply(QUEUE, "[b, c]");
            assert!(!b.is_done());
            same_keys(&scene.old, &scene.new);
        } else {
            scene.fails_over();
            c.assert_start(UNBLOCKED);
            scene.b_has_its_place();
        }
    }
}

/// Its time was up before, and it has not been told that yet.
#[test]
fn a_waiter_whose_time_was_up_can_be_killed() {
    let (mut scene, b, _c) = in_the_pause(WITH_LIMIT);
    scene.time_is_up();
    let kill = format!("CLIENT KILL ID {}", b.id);
    scene.client.assert_reply(&kill, "1");
    scene.gives_up();
    wait_until("b has left", || scene.client.run(QUEUE) == "[c]");
    scene.b_has_left();
    assert_eq!(scene.old.blocked(), 1);
}

#[test]
fn a_failover_that_is_given_up_serves_who_was_due_meanwhile() {
    let (mut scene, b, c) = in_the_pause_with(1000, WITHOUT);
    let end = scene.client.int("PEXPIRETIME k");
    c.disconnect();
    wait_past(&mut scene.client, end + 200);
    scene.client.assert_reply(QUEUE, "[b, c]");
    assert!(!b.is_done());
    scene.gives_up();
    assert!(b.int() > 0);
    wait_until("c has left", || scene.client.run(QUEUE) == "[]");
    same_keys(&scene.old, &scene.new);
}
