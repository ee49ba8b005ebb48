//! A slot moves as a whole (CLUSTER MIGRATESLOTS, Valkey 9.0 and newer; CLUSTER MIGRATION, Redis 8.4 and newer), with
//! locks that are held and waited for in it.
//!
//! Until it is the other node's, everything goes on where it was, and at the other node nothing happens,
//! though the keys are there already. Other servers do not have it: there each test says that it was skipped.

use std::time::{Duration, Instant};

use fairlock_testing::cluster::Cluster;
use fairlock_testing::{Listener, Server, wait_until};

use crate::scene::{
    LEFT, QUEUE, Scene, a_session_stays_behind, goes_on, knows_the_queue, nothing_comes_back,
    tokens_grow,
};
use crate::slots::{
    AWAY, HOME, Migration, hold, is_known, keys_at, two_masters, two_plain_masters,
};

const LONG_TURN: &[&str] = &["--fairlock.turn", "60000"];

fn move_slot(cluster: &Cluster, from: usize, to: usize) {
    Migration::begin(cluster, from, to).finish();
}

/// While the keys are at both nodes, the target only follows the source.
#[test]
fn the_source_serves_its_clients_until_the_slot_has_left() {
    let Some(cluster) = two_masters(&["--fairlock.pubsub", "both"]) else {
        return;
    };
    let home = &cluster.masters[HOME];
    let mut client = home.connect();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiters = ["b", "c", "d"].map(|owner| home.block(&format!("FAIRLOCK.ACQUIRE k {owner}")));
    let [b, c, d] = waiters;
    let migration = Migration::held_open(&cluster, HOME, AWAY);
    migration.nothing_happens_there();
    // Handed on, by a command and by a lease that ends.
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    let token_of_b = b.int();
    assert!(token_of_b > token);
    client.run("PEXPIRE k 50");
    let token_of_c = c.int();
    assert!(token_of_c > token_of_b);
    // A newcomer joins, one leaves, one hangs up.
    client.run("FAIRLOCK.ACQUIRE k x ENQUEUE PATIENCE 600000");
    client.run("FAIRLOCK.ACQUIRE k y ENQUEUE PATIENCE 600000");
    client.assert_reply("FAIRLOCK.CANCEL k x", "1");
    d.disconnect();
    wait_until("d has left", || client.run(QUEUE) == "[y]");
    // A waiter is woken, and the target receives that message as well.
    client.int("FAIRLOCK.ACQUIRE {k}:2 a");
    client.run("FAIRLOCK.ACQUIRE {k}:2 p ENQUEUE PATIENCE 600000");
    let woken = Listener::new(home.port, "redisson_lock__channel:{k}:2:p");
    client.assert_reply("FAIRLOCK.RELEASE {k}:2 a", "0");
    assert_eq!(woken.message(), "0");
    migration.is_up_to_date();
    migration.nothing_happens_there();
    migration.finish();
    let mut client = migration.to.connect();
    client.assert_reply(QUEUE, "[y]");
    assert_eq!(client.holders("k"), "[c, 1]");
    client.assert_reply("FAIRLOCK.RELEASE k c", "0");
    assert!(client.int("FAIRLOCK.ACQUIRE k y ENQUEUE") > token_of_c);
}

#[test]
fn slots_that_leave_take_with_them_what_was_known_of_their_locks() {
    let Some(cluster) = two_masters(&[LONG_TURN, &["--fairlock.clock-skew", "0"]].concat()) else {
        return;
    };
    nothing_comes_back(&cluster, |from, to| move_slot(&cluster, from, to));
}

#[test]
fn tokens_grow_from_node_to_node_though_their_clocks_differ() {
    if let Some(cluster) = two_masters(&[]) {
        tokens_grow(&cluster, |from, to| move_slot(&cluster, from, to));
    }
}

/// What the source knew is forgotten before the first key is back.
#[test]
fn a_slot_that_comes_back_at_once_is_left_alone_until_it_is_here() {
    let Some(cluster) = two_masters(LONG_TURN) else {
        return;
    };
    let mut holder = cluster.masters[HOME].connect();
    for _ in 0..3 {
        holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
        let waiter = cluster.masters[HOME].block("FAIRLOCK.ACQUIRE k b");
        hold(&cluster.masters[AWAY], true);
        // No time is lost.
        let migration = Migration::begin(&cluster, HOME, AWAY);
        migration.wait_for(migration.from, "success");
        let back = Migration::held_open(&cluster, AWAY, HOME);
        assert_eq!(waiter.reply(), LEFT);
        back.to.assert_reply("FAIRLOCK.LOCKS", "[]");
        assert_eq!(back.to.count("locks_with_waiters_or_session"), 0);
        back.finish();
        assert_eq!(holder.holders("k"), "[a, 1]");
        holder.assert_has("FAIRLOCK.INFO k", "session, 0");
        // One that was found would keep its place for a turn.
        holder.assert_reply("FAIRLOCK.CANCEL k b", "1");
        holder.assert_reply("FAIRLOCK.RELEASE k a", "0");
    }
}

/// A module that comes later finds them, too.
#[test]
fn a_module_that_is_loaded_in_the_middle_finds_the_queue_when_it_has_arrived() {
    let Some(cluster) = two_plain_masters() else {
        return;
    };
    let load = format!("MODULE LOAD {}", Server::start().module_path());
    let (home, away) = (&cluster.masters[HOME], &cluster.masters[AWAY]);
    home.assert_reply(&load, "OK");
    let scene = Scene::new(home);
    let migration = Migration::held_open(&cluster, HOME, AWAY);
    away.run("SET {a}:1 1");
    away.assert_reply(&load, "OK");
    migration.finish();
    knows_the_queue(away);
    goes_on(away, scene.token);
}

/// No request is needed first.
#[test]
fn a_queue_that_has_arrived_is_looked_after_at_once() {
    let Some(cluster) = two_masters(&["--fairlock.pubsub", "publish"]) else {
        return;
    };
    for waiter in ["p", "0a1b2c3d-0000-4000-8000-00000000000f:42"] {
        let mut client = cluster.masters[HOME].connect();
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        client.run(&format!(
            "FAIRLOCK.ACQUIRE k {waiter} ENQUEUE PATIENCE 600000"
        ));
        let migration = Migration::held_open(&cluster, HOME, AWAY);
        let channel = format!("redisson_lock__channel:{{k}}:{waiter}");
        let listener = Listener::new(migration.to.port, &channel);
        // The lease ends only there.
        client.run("PEXPIRE k 2500");
        migration.finish();
        knows_the_queue(migration.to);
        assert_eq!(listener.message(), "0");
        assert!(
            migration
                .to
                .connect()
                .int(&format!("FAIRLOCK.ACQUIRE k {waiter} ENQUEUE"))
                > 0
        );
        migration.to.run("FLUSHALL");
        let back = Migration::begin(&cluster, AWAY, HOME);
        back.finish();
    }
}

#[test]
fn a_migration_that_is_cancelled_leaves_nothing_behind_and_costs_no_place() {
    let Some(cluster) = two_masters(LONG_TURN) else {
        return;
    };
    // To the target the lease is over before the lock is there.
    cluster.masters[AWAY].set_clock(3600);
    cluster.is_ready();
    let scene = Scene::new(&cluster.masters[HOME]);
    let mut client = cluster.masters[HOME].connect();
    let free = client.run("FAIRLOCK.ACQUIRE {k}:free p ENQUEUE");
    assert!(free.parse::<i64>().is_ok(), "{free}");
    client.run("FAIRLOCK.ACQUIRE {k}:free q ENQUEUE PATIENCE 1");
    for _ in 0..2 {
        let migration = Migration::held_open(&cluster, HOME, AWAY);
        migration.is_up_to_date();
        migration.nothing_happens_there();
        migration.cancel();
        migration.is_forgotten_there();
    }
    scene.all_wait();
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    let [b, _d] = scene.blocked;
    assert!(b.int() > scene.token);
    client.assert_reply(QUEUE, "[c, d]");
}

/// The lock is released by the session's end as long as it is the source's.
#[test]
fn a_session_ends_with_its_connection_before_and_with_its_slot_after() {
    let Some(cluster) = two_masters(LONG_TURN) else {
        return;
    };
    let home = &cluster.masters[HOME];
    let mut client = home.connect();
    client.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
    let waiting = home.block("FAIRLOCK.ACQUIRE k c LEASE 600000");
    let migration = Migration::held_open(&cluster, HOME, AWAY);
    let kill = format!("CLIENT KILL ID {}", client.id);
    home.assert_reply(&kill, "1");
    let token = waiting.int();
    migration.is_up_to_date();
    migration.nothing_happens_there();
    migration.finish();
    let mut away = migration.to.connect();
    assert_eq!(away.holders("k"), "[c, 1]");
    assert_eq!(away.token("k"), token);
    away.int("FAIRLOCK.RELEASE k c");
    move_slot(&cluster, AWAY, HOME);
    a_session_stays_behind(&cluster, |from, to| move_slot(&cluster, from, to));
}

/// What cannot be written at the source any more is not said to have happened.
#[test]
fn a_wait_that_runs_out_while_the_slot_is_handed_over_goes_on_there() {
    let Some(cluster) = two_masters(LONG_TURN) else {
        return;
    };
    let home = &cluster.masters[HOME];
    home.connect().int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    // Not over before the pause begins, and over before the server gives up, ten seconds after.
    let b = home.block("FAIRLOCK.ACQUIRE k b WAIT 5000");
    let asked = Instant::now();
    let c = home.block("FAIRLOCK.ACQUIRE k c");
    let Some(migration) = Migration::held_paused(&cluster, HOME, AWAY) else {
        return;
    };
    wait_until("the time is up", || {
        asked.elapsed() > Duration::from_millis(5100)
    });
    assert!(!b.is_done());
    migration.finish();
    for waiter in [b, c] {
        assert_eq!(waiter.reply(), LEFT);
    }
    let mut away = migration.to.connect();
    let _newcomer = migration.to.block("FAIRLOCK.ACQUIRE k d");
    let b = migration.to.block("FAIRLOCK.ACQUIRE k b");
    away.assert_reply(QUEUE, "[b, c, d]");
    away.assert_reply("FAIRLOCK.RELEASE k a", "0");
    b.int();
}

/// The replica of the target has followed, and takes over.
#[test]
fn a_replica_that_has_followed_takes_over_what_has_arrived() {
    if !is_known() {
        return;
    }
    let options = [&["--enable-debug-command", "yes"], LONG_TURN].concat();
    let cluster = Cluster::start(2, 1, &options);
    let scene = Scene::new(&cluster.masters[HOME]);
    let migration = Migration::held_open(&cluster, HOME, AWAY);
    migration.is_up_to_date();
    migration.nothing_happens_there();
    migration.finish();
    for waiter in scene.blocked {
        assert_eq!(waiter.reply(), LEFT);
    }
    assert_eq!(migration.to.connect().run("WAIT 1 30000"), "1");
    let replica = &cluster.replicas[AWAY];
    replica.assert_reply("CLUSTER FAILOVER TAKEOVER", "OK");
    wait_until("the replica is the master", || replica.is_master());
    knows_the_queue(replica);
    goes_on(replica, scene.token);
}

/// The target fails over in the middle: the new master takes the keys back.
#[test]
fn a_target_that_fails_over_in_the_middle_leaves_nothing_behind() {
    if !is_known() {
        return;
    }
    let cluster = Cluster::start(2, 1, &["--enable-debug-command", "yes"]);
    let scene = Scene::new(&cluster.masters[HOME]);
    let migration = Migration::held_open(&cluster, HOME, AWAY);
    migration.is_up_to_date();
    let replica = &cluster.replicas[AWAY];
    let count = || keys_at(replica, migration.slot);
    wait_until("the replica follows", || count() > 0);
    replica.assert_reply("CLUSTER FAILOVER TAKEOVER", "OK");
    migration.wait_for(migration.from, "failed");
    wait_until("the keys are gone", || count() == 0);
    wait_until("the replica is the master", || replica.is_master());
    replica.assert_reply("FAIRLOCK.LOCKS", "[]");
    assert_eq!(replica.count("locks_with_waiters_or_session"), 0);
    scene.all_wait();
    assert_eq!(migration.from.connect().run(QUEUE), "[b, c, d]");
}
