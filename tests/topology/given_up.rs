//! A slot begins to move, key by key, and stays where it was.

use fairlock_testing::cluster::Cluster;
use fairlock_testing::wait_until;

use crate::migration::begin;
use crate::moving::{HOME, two_masters};
use crate::scene::{QUEUE, Scene};

/// redis-cli asks for the keys of a slot, and then moves these. One that is made in between stays behind, and cannot
/// follow if the other node has made it, too.
#[test]
fn a_slot_that_leaves_gets_no_new_key_by_a_hand_off() {
    let cluster = Cluster::start(2, 0, &[]);
    let home = &cluster.masters[HOME];
    home.connect().int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let [b, c] =
        ["b", "c"].map(|owner| home.block(&format!("FAIRLOCK.ACQUIRE k {owner} LEASE 600000")));
    let moving = begin(&cluster);
    let before = home.run("DBSIZE");
    home.assert_reply("FAIRLOCK.RELEASE k a", "0");
    assert!(b.int() > 0);
    home.assert_reply("DBSIZE", &before);
    moving.give_up();
    home.assert_reply("FAIRLOCK.RELEASE k b", "0");
    assert!(c.int() > 0);
}

#[test]
fn an_abandoned_migration_keeps_all_places() {
    let cluster = two_masters(&[]);
    let scene = Scene::new(&cluster.masters[HOME]);
    let moving = begin(&cluster);
    let home = moving.from;
    let mut client = home.connect();
    // As long as all keys are here nothing is different; one that is not may have moved.
    client.assert_start("FAIRLOCK.ACQUIRE k x ENQUEUE", "[4, ");
    client.assert_reply("FAIRLOCK.CANCEL k x", "1");
    client.assert_reply("DEL redisson_lock_timeout:{k}", "1");
    client.assert_error("FAIRLOCK.ACQUIRE k x ENQUEUE", "TRYAGAIN");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    scene.all_wait();
    moving.give_up();
    let [b, d] = scene.blocked;
    assert!(b.int() > scene.token);
    client.assert_reply("FAIRLOCK.RELEASE k b", "0");
    client.int("FAIRLOCK.ACQUIRE k c ENQUEUE");
    client.assert_reply("FAIRLOCK.RELEASE k c", "0");
    d.int();
}

#[test]
fn a_waiter_who_hangs_up_before_the_move_is_given_up_has_left() {
    let cluster = two_masters(&[]);
    let home = &cluster.masters[HOME];
    home.connect().int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let dying = home.block("FAIRLOCK.ACQUIRE k b");
    let next = home.block("FAIRLOCK.ACQUIRE k c");
    let moving = begin(&cluster);
    home.run("DEL redisson_lock_timeout:{k}");
    dying.disconnect();
    moving.give_up();
    wait_until("b has left", || home.run(QUEUE) == "[c]");
    home.assert_reply("FAIRLOCK.RELEASE k a", "0");
    next.int();
}

#[test]
fn a_session_that_ends_before_its_key_has_moved_frees_the_lock() {
    let cluster = two_masters(&[]);
    let home = &cluster.masters[HOME];
    let mut holder = home.connect();
    let id = holder.id;
    holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
    let moving = begin(&cluster);
    home.run(&format!("CLIENT KILL ID {id}"));
    wait_until("it is free", || home.run("DBSIZE") == "0");
    moving.give_up();
    home.connect().int("FAIRLOCK.ACQUIRE k b");
}
