//! Locks with several holders, where a slot moves or a replica takes over.

use fairlock_testing::{lua, wait_until};

use crate::moving::{AWAY, HOME, Move, to_and_fro, two_masters};
use crate::scene::LEFT;

#[test]
fn holders_move_with_their_slot_in_whichever_order_the_keys_move() {
    let cluster = two_masters(&[]);
    let [lock, queue, deadlines, _] = lua::keys("k");
    let shared = "redisson_lock_shared:{k}".to_owned();
    let orders = [
        [lock.clone(), shared.clone()],
        [shared.clone(), lock.clone()],
    ];
    for (order, (from, to)) in orders.iter().zip(to_and_fro()) {
        let home = &cluster.masters[from];
        let mut client = home.connect();
        let a = client.int("FAIRLOCK.ACQUIRE k a SHARED 2 LEASE 600000");
        let b = client.int("FAIRLOCK.ACQUIRE k b SHARED 2 LEASE 600000");
        let waiter = home.block("FAIRLOCK.ACQUIRE k c SHARED 2 LEASE 600000");
        let moving = Move::begin(&cluster, from, to);
        for key in order {
            moving.keys(std::slice::from_ref(key));
            // No client becomes a holder while a part of the lock is elsewhere.
            let ask = client.run("FAIRLOCK.ACQUIRE k d SHARED NOWAIT");
            assert!(
                ask.starts_with("(error) ASK ") || ask.starts_with("(error) TRYAGAIN "),
                "{ask}"
            );
            assert!(!waiter.is_done());
        }
        moving.keys(&[queue.clone(), deadlines.clone()]);
        assert_eq!(waiter.reply(), LEFT);
        let there = moving.to;
        moving.finish();
        let holders = there.run("FAIRLOCK.HOLDERS k");
        assert!(holders.contains(&format!(", {a}, 0, 2]")), "{holders}");
        assert!(holders.contains(&format!(", {b}, 0, 2]")), "{holders}");
        let waiter = there.block("FAIRLOCK.ACQUIRE k c SHARED 2 LEASE 600000");
        there.assert_reply("FAIRLOCK.RELEASE k a", "0");
        assert!(waiter.int() > b);
        there.assert_reply("FAIRLOCK.BREAK k", "1");
        wait_until("nothing is left", || there.run("DBSIZE") == "0");
        home.assert_reply("DBSIZE", "0");
    }
}

#[test]
fn shared_holders_are_known_as_soon_as_their_slot_has_come() {
    let cluster = two_masters(&[]);
    let home = &cluster.masters[HOME];
    for command in [
        "RELEASE k a",
        "RENEW k a",
        "BREAK k OWNER a",
        "ACQUIRE k a SHARED",
    ] {
        for owner in ["a", "b"] {
            home.run(&format!("FAIRLOCK.ACQUIRE k {owner} SHARED LEASE 600000"));
        }
        let moving = Move::begin(&cluster, HOME, AWAY);
        let there = moving.to;
        for key in ["k", "redisson_lock_shared:{k}"] {
            moving.keys(&[key.to_owned()]);
            // At both nodes the holder is told to come again, until all of the lock has come.
            let ask = format!("FAIRLOCK.{command}");
            for reply in [home.connect().run(&ask), there.asking(&ask)] {
                let is_refused =
                    ["ASK", "TRYAGAIN"].map(|code| reply.starts_with(&format!("(error) {code} ")));
                assert!(is_refused.contains(&true), "{command}: {reply}");
            }
        }
        let mut client = there.connect();
        moving.finish();
        let reply = client.run(&format!("FAIRLOCK.{command}"));
        assert!(!reply.starts_with("(error)"), "{command}: {reply}");
        there.run("FAIRLOCK.BREAK k");
        let back = Move::begin(&cluster, AWAY, HOME);
        back.finish();
    }
}

#[test]
fn a_lease_that_ends_on_the_way_is_over_where_the_lock_arrives() {
    let cluster = two_masters(&[]);
    let [lock, queue, deadlines, _] = lua::keys("k");
    let home = &cluster.masters[HOME];
    let mut client = home.connect();
    client.int("FAIRLOCK.ACQUIRE k a SHARED LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED LEASE 1500");
    let moving = Move::begin(&cluster, HOME, AWAY);
    moving.keys(&["redisson_lock_shared:{k}".to_owned()]);
    moving.keys(&[lock, queue, deadlines]);
    let there = moving.to;
    moving.finish();
    there.connect().wait_for("HEXISTS k b", "0");
    there.assert_reply("HEXISTS k a", "1");
}
