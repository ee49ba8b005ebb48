//! Locks with several holders, where a slot moves or a replica takes over.

use fairlock_testing::{lua, wait_until};

use crate::moving::{AWAY, HOME, Move, to_and_fro, two_masters};
use crate::scene::LEFT;

/// Until then holders and newcomers are told to come again, by the node that they are sent to.
#[test]
fn shared_holders_go_on_once_all_keys_have_moved_in_whichever_order() {
    let cluster = two_masters(&[]);
    let [lock, queue, deadlines, _] = lua::keys("k");
    let shared = "redisson_lock_shared:{k}".to_owned();
    let orders = [[&lock, &shared], [&shared, &lock]];
    let commands = [
        "RELEASE k a",
        "RENEW k a",
        "BREAK k OWNER a",
        "ACQUIRE k a SHARED 2",
    ];
    let courses = commands.iter().zip(orders.iter().cycle());
    for ((command, order), (from, to)) in courses.zip(to_and_fro()) {
        let home = &cluster.masters[from];
        let ask = |owner| format!("FAIRLOCK.ACQUIRE k {owner} SHARED 2 LEASE 600000");
        let mut client = home.connect();
        let tokens = ["a", "b"].map(|owner| client.int(&ask(owner)));
        let waiter = home.block(&ask("c"));
        let moving = Move::begin(&cluster, from, to);
        let there = moving.to;
        let command = format!("FAIRLOCK.{command}");
        for key in order {
            moving.keys(std::slice::from_ref(key));
            for asked in [command.as_str(), "FAIRLOCK.ACQUIRE k d SHARED NOWAIT"] {
                let mut reply = client.run(asked);
                if reply.starts_with("(error) ASK ") {
                    reply = there.asking(asked);
                }
                let is_refused = reply.starts_with("(error) TRYAGAIN ");
                assert!(is_refused, "{asked}: {reply}");
            }
        }
        moving.keys(&[queue.clone(), deadlines.clone()]);
        assert_eq!(waiter.reply(), LEFT);
        moving.finish();
        let holders = there.run("FAIRLOCK.HOLDERS k");
        for token in tokens {
            assert!(holders.contains(&format!(", {token}, 0, 2]")), "{holders}");
        }
        there.run(&command);
        let waiter = there.block(&ask("c"));
        there.connect().run("FAIRLOCK.RELEASE k a ALL");
        assert!(waiter.int() > tokens[1]);
        there.assert_reply("FAIRLOCK.BREAK k", "1");
        wait_until("nothing is left", || there.run("DBSIZE") == "0");
        home.assert_reply("DBSIZE", "0");
    }
}

/// Where not all keys are nothing is written: a key that has moved, and is there again, stops the tool that moves it.
#[test]
fn a_lease_that_ends_on_the_way_is_over_where_the_lock_arrives() {
    let cluster = two_masters(&[]);
    let [lock, queue, deadlines, _] = lua::keys("k");
    let home = &cluster.masters[HOME];
    let mut client = home.connect();
    client.int("FAIRLOCK.ACQUIRE k a SHARED LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED LEASE 6000");
    client.int("FAIRLOCK.ACQUIRE k c SHARED SESSION LEASE 3000");
    let moving = Move::begin(&cluster, HOME, AWAY);
    moving.keys(&["redisson_lock_shared:{k}".to_owned()]);
    client.assert_reply("SET b 1 PX 6500", "OK");
    client.wait_for("EXISTS b", "0");
    client.assert_reply("DBSIZE", "1");
    client.assert_reply("HLEN k", "4");
    moving.keys(&[lock, queue, deadlines]);
    let there = moving.to;
    moving.finish();
    there.connect().wait_for("HEXISTS k b", "0");
    there.assert_reply("HEXISTS k a", "1");
}
