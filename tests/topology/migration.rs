//! A slot moves from one node to another, with a lock that is held and waited for in it.
//!
//! While it moves, no node sees all of the lock: only its holder is served, and no reply is wrong. When it has moved,
//! all clients are where the lock is, in the order of the queue.

use fairlock_testing::cluster::Cluster;
use fairlock_testing::native::library;
use fairlock_testing::{Client, Listener, Wire, lua, wait_until};
use tempfile::TempDir;

use crate::moving::{AWAY, HOME, Move, to_and_fro, two_masters};
use crate::scene::{
    LEFT, QUEUE, Scene, a_session_stays_behind, goes_on, knows_the_queue, nothing_comes_back,
    tokens_grow,
};

pub fn begin(cluster: &Cluster) -> Move<'_> {
    Move::begin(cluster, HOME, AWAY)
}

/// Moves the slot with all keys of the lock.
fn move_all(cluster: &Cluster, from: usize, to: usize) {
    let moving = Move::begin(cluster, from, to);
    moving.keys(&lua::keys("k"));
    moving.finish();
}

#[test]
fn all_places_are_kept_in_any_order_of_the_keys() {
    let cluster = two_masters(&["--fairlock.turn", "60000"]);
    let [lock, queue, deadlines, _] = lua::keys("k");
    let orders = [
        [&lock, &queue, &deadlines],
        [&deadlines, &queue, &lock],
        [&queue, &lock, &deadlines],
        [&deadlines, &lock, &queue],
    ];
    for (order, (from, to)) in orders.iter().zip(to_and_fro()) {
        let scene = Scene::new(&cluster.masters[from]);
        let slot = cluster.slot("k");
        let moving = Move::begin(&cluster, from, to);
        for (done, key) in order.iter().enumerate() {
            moving.keys(&[(*key).clone()]);
            let left = &order[done + 1..];
            no_waiter_is_served(&moving, left.contains(&&lock));
            if !left.is_empty() {
                scene.all_wait();
            }
            let left: usize = moving.from.run("DBSIZE").parse().expect("a number");
            assert_eq!(left, order.len() - done - 1, "after {key}");
        }
        let node = moving.to;
        for waiter in scene.blocked {
            assert_eq!(waiter.reply(), LEFT);
        }
        moving.finish();
        let ask = cluster.masters[from].connect().run("FAIRLOCK.ACQUIRE k b");
        assert_eq!(ask, format!("(error) MOVED {slot} {}", node.address()));
        goes_on(node, scene.token);
        assert_eq!(cluster.masters[from].run("DBSIZE"), "0");
        node.run("FLUSHALL");
    }
}

/// A newcomer is told to come again, at the node where it is sent to; the holder is not.
fn no_waiter_is_served(moving: &Move<'_>, lock_is_at_home: bool) {
    let ask = "FAIRLOCK.ACQUIRE k x ENQUEUE";
    let at_home = moving.from.connect().run(ask);
    let there = moving.to.asking(ask);
    if lock_is_at_home {
        assert!(at_home.starts_with("(error) TRYAGAIN "), "{at_home}");
    } else {
        assert!(at_home.starts_with("(error) ASK "), "{at_home}");
    }
    let complete = there.starts_with("[4, ");
    assert!(
        complete || there.starts_with("(error) TRYAGAIN "),
        "{there}"
    );
    if complete {
        assert_eq!(moving.to.asking("FAIRLOCK.CANCEL k x"), "1");
    }
}

#[test]
fn a_holder_renews_and_releases_wherever_its_key_is() {
    let cluster = two_masters(&["--fairlock.turn", "60000"]);
    let [lock, queue, deadlines, _] = lua::keys("k");
    let scene = Scene::new(&cluster.masters[HOME]);
    let moving = begin(&cluster);
    moving.keys(&[queue, deadlines]);
    let mut home = moving.from.connect();
    home.assert_reply("FAIRLOCK.RENEW k a LEASE 500000", "500000");
    let again = home.int("FAIRLOCK.ACQUIRE k a LEASE 500000");
    assert_eq!(again, scene.token);
    home.assert_reply("FAIRLOCK.RELEASE k a", "1");
    moving.keys(&[lock]);
    // Its holder is no longer known here.
    home.assert_error("FAIRLOCK.ACQUIRE k a", "ASK");
    assert_eq!(
        moving.to.asking("FAIRLOCK.RENEW k a LEASE 400000"),
        "400000"
    );
    assert_eq!(moving.to.asking("FAIRLOCK.RELEASE k b"), NOT_HELD);
    let to = moving.to;
    moving.finish();
    goes_on(to, scene.token);
}

const NOT_HELD: &str = "(error) NOTHELD the owner does not hold the lock";

#[test]
fn a_lock_that_is_released_while_half_of_it_has_moved_goes_to_the_head_when_all_has() {
    let cluster = two_masters(&["--fairlock.turn", "60000"]);
    let [lock, queue, deadlines, _] = lua::keys("k");
    let scene = Scene::new(&cluster.masters[HOME]);
    let moving = begin(&cluster);
    moving.keys(&[lock]);
    assert_eq!(moving.to.asking("FAIRLOCK.RELEASE k a"), "0");
    scene.all_wait();
    let newcomer = moving.to.asking("FAIRLOCK.ACQUIRE k x NOWAIT");
    assert!(newcomer.starts_with("(error) TRYAGAIN "), "{newcomer}");
    moving.keys(&[queue, deadlines]);
    let to = moving.to;
    moving.finish();
    // No newcomer overtakes the clients that are on their way.
    let mut client = to.connect();
    client.assert_reply("FAIRLOCK.ACQUIRE k x NOWAIT", "(nil)");
    let [b, _d] = scene.blocked;
    assert_eq!(b.reply(), LEFT);
    assert!(client.int("FAIRLOCK.ACQUIRE k b") > scene.token);
    client.assert_reply(QUEUE, "[c, d]");
}

#[test]
fn a_waiter_whose_time_is_up_or_who_hangs_up_on_the_way_costs_one_turn() {
    let cluster = two_masters(&["--fairlock.turn", "200"]);
    let home = &cluster.masters[HOME];
    home.connect().int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    // Not over before the first keys have moved.
    let short = home.block("FAIRLOCK.ACQUIRE k b WAIT 6000");
    let dying = home.block("FAIRLOCK.ACQUIRE k c");
    let last = home.block("FAIRLOCK.ACQUIRE k d");
    let moving = begin(&cluster);
    let keys = lua::keys("k");
    moving.keys(&keys[1..]);
    dying.disconnect();
    assert_eq!(short.reply(), "(nil)");
    assert!(!last.is_done());
    moving.keys(&keys[..1]);
    let away = moving.to;
    moving.finish();
    assert_eq!(last.reply(), LEFT);
    let last = away.block("FAIRLOCK.ACQUIRE k d");
    away.assert_reply(QUEUE, "[b, c, d]");
    away.assert_reply("FAIRLOCK.RELEASE k a", "0");
    last.int();
    away.assert_reply(QUEUE, "[]");
}

#[test]
fn a_waiter_whose_deadline_passes_on_the_way_has_a_turn_to_arrive() {
    // The grace of the servers' own start is over at once.
    let cluster = two_masters(&["--fairlock.turn", "1"]);
    let home = &cluster.masters[HOME];
    home.run("FAIRLOCK.ACQUIRE k a LEASE 600000");
    home.connect().enqueue(["p"]);
    let moving = begin(&cluster);
    let away = moving.to;
    away.run("CONFIG SET fairlock.turn 60000");
    moving.keys(&lua::keys("k"));
    away.asking("ZADD redisson_lock_timeout:{k} 1 p");
    away.asking("DEL k");
    moving.finish();
    away.assert_reply("FAIRLOCK.ACQUIRE k x NOWAIT", "(nil)");
    assert!(away.connect().int("FAIRLOCK.ACQUIRE k p ENQUEUE") > 0);
}

#[test]
fn a_slot_that_leaves_takes_with_it_what_was_known_of_its_locks() {
    let cluster = two_masters(&["--fairlock.turn", "60000"]);
    nothing_comes_back(&cluster, |from, to| move_all(&cluster, from, to));
    a_session_stays_behind(&cluster, |from, to| move_all(&cluster, from, to));
}

#[test]
fn tokens_grow_while_a_slot_moves_between_servers_whose_clocks_differ() {
    let cluster = Cluster::start(2, 0, &[]);
    tokens_grow(&cluster, |from, to| move_all(&cluster, from, to));
}

#[test]
fn a_free_lock_cannot_be_taken_while_its_slot_moves() {
    let cluster = two_masters(&[]);
    let moving = begin(&cluster);
    for command in ["NOWAIT", "ENQUEUE", "WAIT 100", ""] {
        let ask = format!("FAIRLOCK.ACQUIRE k x {command}");
        let ask = ask.trim_end();
        let reply = moving.from.connect().run(ask);
        assert!(reply.starts_with("(error) ASK "), "{reply}");
        let reply = moving.to.asking(ask);
        assert!(reply.starts_with("(error) TRYAGAIN "), "{reply}");
        let reply = moving.to.connect().run(ask);
        assert!(reply.starts_with("(error) MOVED "), "{reply}");
    }
    let to = moving.to;
    moving.finish();
    assert!(to.connect().int("FAIRLOCK.ACQUIRE k x") > 0);
}

/// The head is silent, and the next one is woken for it.
#[test]
fn a_queue_that_has_arrived_is_served_without_a_request() {
    let cluster = two_masters(&["--fairlock.turn", "200", "--fairlock.pubsub", "publish"]);
    let home = &cluster.masters[HOME];
    home.run("FAIRLOCK.ACQUIRE k a LEASE 600000");
    home.connect().enqueue(["p", "q"]);
    let moving = begin(&cluster);
    let away = moving.to;
    let next = Listener::new(away.port, "redisson_lock__channel:{k}:q");
    moving.keys(&lua::keys("k"));
    moving.finish();
    knows_the_queue(away);
    away.run("PEXPIRE k 1");
    assert_eq!(next.message(), "0");
}

#[test]
fn a_queue_that_arrives_and_is_asked_for_by_the_other_of_two_names_keeps_no_server_awake() {
    let dir = TempDir::new().expect("a directory");
    let counter = library("tests/black_box/server/iterations.c", dir.path());
    let counter = counter.to_str().expect("UTF-8");
    let options = ["--loadmodule", counter, "--fairlock.intercept-eval", "yes"];
    let cluster = two_masters(&options);
    let moving = begin(&cluster);
    assert_eq!(moving.to.asking("RPUSH redisson_lock_queue:{k} w"), "1");
    // It is known as that of `k`, until the slot is here.
    let mut client = moving.to.connect();
    let arrives = format!("CLUSTER SETSLOT {} NODE {}", moving.slot, moving.to.id);
    let asks = "FAIRLOCK.ACQUIRE {k} o ENQUEUE";
    client.run_many([arrives.as_str(), asks]);
    client.assert_reply("LRANGE redisson_lock_queue:{k} 0 -1", "[w, o]");
    let before = client.int("ITERATIONS");
    client.assert_reply("BLPOP nothing{k} 1", "(nil)");
    let iterations = client.int("ITERATIONS") - before;
    assert!(iterations < 200, "{iterations}");
}

#[test]
fn waiters_of_a_slot_that_is_taken_away_are_sent_after_it() {
    let cluster = two_masters(&[]);
    let (home, away) = (&cluster.masters[HOME], &cluster.masters[AWAY]);
    let scene = Scene::new(home);
    let slot = cluster.slot("k");
    // As after a partition: the other node claims it, and it counts.
    away.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", home.id));
    away.run(&format!("CLUSTER SETSLOT {slot} NODE {}", away.id));
    for waiter in scene.blocked {
        assert_eq!(waiter.reply(), LEFT);
    }
    assert_eq!(home.count("acquisitions_handed_off"), 0);
    home.assert_reply("DBSIZE", "0");
}

/// A key that has moved, and is there once more, stops the tool that moves the slot (BUSYKEY).
#[test]
fn the_key_of_a_token_is_not_made_again_where_it_has_moved() {
    let cluster = Cluster::start(2, 0, &["--fairlock.clock-skew", "600000"]);
    let home = &cluster.masters[HOME];
    // The slot comes to its first node, which is to give tokens ahead of its clock.
    let slot = cluster.slot("k");
    Move::begin(&cluster, HOME, AWAY).finish();
    Move::begin(&cluster, AWAY, HOME).finish();
    let token_key = ["fairlock_token:{k}".to_owned()];
    let mut client = home.connect();
    let last = client.int("FAIRLOCK.ACQUIRE k a");
    let next = home.block("FAIRLOCK.ACQUIRE k b");
    client.run("FAIRLOCK.ACQUIRE k c ENQUEUE PATIENCE 600000");
    client.assert_reply("EXISTS fairlock_token:{k}", "1");
    let moving = Move::begin(&cluster, HOME, AWAY);
    moving.keys(&token_key);
    // Handed on while all other keys are here, and released when the queue has moved.
    client.int("FAIRLOCK.RELEASE k a");
    assert!(next.int() > last);
    let [lock, queue, deadlines, _] = lua::keys("k");
    moving.keys(&[queue, deadlines]);
    client.int("FAIRLOCK.RELEASE k b");
    moving.keys(&[token_key.as_slice(), &[lock]].concat());
    client.assert_reply(&format!("CLUSTER COUNTKEYSINSLOT {slot}"), "0");
    moving.finish();
    let mut there = cluster.masters[AWAY].connect();
    assert!(there.int("FAIRLOCK.ACQUIRE k c ENQUEUE") > last + 1);
}

/// The command filter sees the command before the server refuses it.
#[test]
fn a_client_without_rights_that_says_a_slot_comes_or_goes_changes_nothing() {
    let cluster = Cluster::start(2, 0, &[]);
    let home = &cluster.masters[HOME];
    let mut admin = home.connect();
    let free = |client: &mut Client| {
        client.int("FAIRLOCK.ACQUIRE k a");
        client.int("FAIRLOCK.RELEASE k a");
        client.run("EXISTS fairlock_token:{k}") == "0"
    };
    wait_until("tokens are not ahead of the clock", || free(&mut admin));
    let slot = cluster.slot("k");
    admin.run("CONFIG SET requirepass secret");
    let mut stranger = Wire::new(home.port);
    for what in [
        format!("SETSLOT {slot} NODE {}", home.id),
        format!("SETSLOT {slot} MIGRATING {}", cluster.masters[AWAY].id),
        "SETSLOT 99999 STABLE".to_owned(),
    ] {
        stranger.send(&format!("CLUSTER {what}"));
        assert!(stranger.line().starts_with("-NOAUTH "), "{what}");
        assert!(free(&mut admin), "{what}");
    }
}
