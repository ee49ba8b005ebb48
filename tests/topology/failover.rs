//! A node of a cluster fails, or hands its role over, while clients hold and wait.

use std::time::{Duration, Instant};

use fairlock_testing::cluster::{Cluster, Node};
use fairlock_testing::wait_until;

use crate::scene::{QUEUE, Scene, goes_on};

/// Three masters, each with a replica; the scene at the master of `k`, and its replica has it.
fn with_scene() -> (Cluster, Scene, usize) {
    let cluster = Cluster::start(3, 1, &["--fairlock.turn", "60000"]);
    let home = cluster.home("k");
    let scene = Scene::new(&cluster.masters[home]);
    let replica = &cluster.replicas[home];
    wait_until("the replica has all", || {
        let mut reader = replica.connect();
        reader.run("READONLY");
        reader.run(QUEUE) == "[b, c, d]"
    });
    (cluster, scene, home)
}

fn is_master(node: &Node) -> bool {
    node.is_master() && node.is_ok()
}

/// A blocked client is told what BLPOP is told: that the server has become a replica.
const UNBLOCKED: &str = "(error) UNBLOCKED ";

/// The replica takes over by a command, and the lock goes on there.
#[test]
fn a_failover_that_is_asked_for_keeps_every_place() {
    for options in ["", " FORCE", " TAKEOVER"] {
        let (cluster, scene, home) = with_scene();
        let (old, new) = (&cluster.masters[home], &cluster.replicas[home]);
        new.assert_reply(&format!("CLUSTER FAILOVER{options}"), "OK");
        for waiter in scene.blocked {
            waiter.assert_start(UNBLOCKED);
        }
        wait_until("the replica is the master", || is_master(new));
        goes_on(new, scene.token);
        // The old one redirects all clients there.
        let reply = old.connect().run("FAIRLOCK.ACQUIRE k x");
        assert!(
            reply.starts_with("(error) MOVED ") && reply.ends_with(&new.address()),
            "{reply}"
        );
    }
}

/// No waiter is left behind at the old master: when it is the master again, it waits for each client that it sent away
/// for a turn at most.
#[test]
fn who_was_sent_away_and_stays_away_costs_a_turn_after_failing_back() {
    let cluster = Cluster::start(3, 1, &["--fairlock.turn", "200"]);
    let home = cluster.home("k");
    let (old, new) = (&cluster.masters[home], &cluster.replicas[home]);
    let mut holder = old.connect();
    holder.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let forever = old.block("FAIRLOCK.ACQUIRE k b");
    let with_limit = old.block("FAIRLOCK.ACQUIRE k c WAIT 600000");
    holder.assert_reply("WAIT 1 30000", "1");
    hands_over(&cluster, old, new);
    for waiter in [forever, with_limit] {
        waiter.assert_start(UNBLOCKED);
    }
    assert_eq!(old.blocked(), 0);
    hands_over(&cluster, new, old);
    let newcomer = old.block("FAIRLOCK.ACQUIRE k x");
    assert_eq!(old.connect().run("FAIRLOCK.RELEASE k a"), "0");
    newcomer.int();
}

/// The replica of a master takes its place, and both know.
fn hands_over(cluster: &Cluster, master: &Node, replica: &Node) {
    wait_until("the replica is connected", || {
        replica.info("replication", "master_link_status") == "up"
    });
    // A master ignores requests of a node that it does not know as its replica; the other masters do not vote for one.
    let knows = format!("slave {}", master.id);
    wait_until("every node knows the replica's master", || {
        cluster.nodes().all(|node| {
            let nodes = node.run("CLUSTER NODES");
            let mut replicas = nodes.split("\\n").filter(|line| line.contains(&knows));
            replicas.any(|line| line.starts_with(&replica.id))
        })
    });
    let mut asked: Option<Instant> = None;
    wait_until("they have changed places", || {
        // The servers give up after five seconds, on a machine that is too busy.
        if asked.is_none_or(|asked| asked.elapsed() > Duration::from_secs(8)) {
            replica.connect().run("CLUSTER FAILOVER");
            asked = Some(Instant::now());
        }
        is_master(replica) && !master.is_master()
    });
}

/// A client whose WAIT has run out is told nil and has left, or is sent to the new master and has its place.
#[test]
fn a_wait_that_runs_out_in_a_planned_failover_is_told_what_is_true() {
    let cluster = Cluster::start(3, 1, &["--fairlock.turn", "60000"]);
    let home = cluster.home("k");
    let mut nodes = [&cluster.masters[home], &cluster.replicas[home]];
    let ask = "FAIRLOCK.ACQUIRE k a LEASE 600000";
    nodes[0].connect().int(ask);
    for attempt in 0..10 {
        wait_until("one is the other's replica", || {
            nodes.sort_by_key(|node| !is_master(node));
            is_master(nodes[0]) && nodes[1].info("replication", "master_link_status") == "up"
        });
        let [old, new] = nodes;
        let owner = format!("b{attempt}");
        // Over before the replica gives up, after five seconds. Without votes it does not go on before the time is up.
        let (waiter, is_over) = without_votes(&cluster, home, || {
            let waiter = old.block(&format!("FAIRLOCK.ACQUIRE k {owner} WAIT 2500"));
            let asked = Instant::now();
            new.connect().run("CLUSTER FAILOVER");
            wait_until("the time is up, or the pause", || {
                asked.elapsed() > Duration::from_millis(2600) || waiter.is_done()
            });
            let is_over = !waiter.is_done();
            (waiter, is_over)
        });
        let reply = waiter.reply();
        let is_nil = reply == "(nil)";
        if !is_nil {
            assert!(reply.starts_with(UNBLOCKED), "{reply}");
            wait_until("the replica is the master", || is_master(new));
            new.assert_reply(QUEUE, &format!("[{owner}]"));
            if is_over {
                return;
            }
            new.run(&format!("FAIRLOCK.CANCEL k {owner}"));
        }
        wait_until("it has left", || {
            let masters = nodes.iter().filter(|node| is_master(node));
            masters.map(|node| node.connect().run(QUEUE)).eq(["[]"])
        });
    }
    panic!("no pause was long enough");
}

/// Meanwhile both other masters stand still.
fn without_votes<T>(cluster: &Cluster, home: usize, body: impl FnOnce() -> T) -> T {
    let [one, other] = [1, 2].map(|step| &cluster.masters[(home + step) % 3]);
    one.while_stopped(|| other.while_stopped(body))
}

/// A node that knows the cluster to be down lets its clients go, and takes none of their places. It hands no lock on
/// either: another node may be doing that by now.
#[test]
fn a_node_that_is_cut_off_hands_nothing_on() {
    let cluster = Cluster::start(3, 0, &["--fairlock.turn", "60000"]);
    let node = &cluster.masters[0];
    let lock = cluster.lock_of(0);
    let mut client = node.connect();
    client.int(&format!("FAIRLOCK.ACQUIRE {lock} a LEASE 600000"));
    let waiters = ["b", "c"].map(|owner| node.block(&format!("FAIRLOCK.ACQUIRE {lock} {owner}")));
    without_votes(&cluster, 0, || {
        for waiter in waiters {
            waiter.assert_start("(error) CLUSTERDOWN ");
        }
        client.assert_error(&format!("PEXPIRE {lock} 1"), "CLUSTERDOWN");
    });
    wait_until("the cluster is up", || node.is_ok());
    let queue = format!("LRANGE redisson_lock_queue:{{{lock}}} 0 -1");
    client.assert_reply(&queue, "[b, c]");
    // The lock waits for each of them for a turn.
    client.assert_reply(&format!("FAIRLOCK.RELEASE {lock} a"), "0");
    client.assert_reply(&format!("FAIRLOCK.ACQUIRE {lock} x NOWAIT"), "(nil)");
    for owner in ["b", "c"] {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} {owner} ENQUEUE"));
        client.assert_reply(&format!("FAIRLOCK.RELEASE {lock} {owner}"), "0");
    }
}

/// Some servers send clients away by themselves as well.
#[test]
fn a_client_is_sent_away_once() {
    let cluster = Cluster::start(3, 1, &[]);
    let (home, replica) = (&cluster.masters[0], &cluster.replicas[0]);
    let lock = cluster.lock_of(0);
    let mut holder = home.connect();
    holder.int(&format!("FAIRLOCK.ACQUIRE {lock} a LEASE 600000"));
    let ask = format!("FAIRLOCK.ACQUIRE {lock} b");
    let mut waiter = home.wire(&ask);
    wait_until("b waits", || home.blocked() == 1);
    let reply = without_votes(&cluster, 0, || waiter.line());
    assert!(reply.starts_with("-CLUSTERDOWN "), "{reply}");
    waiter.send("PING");
    assert_eq!(waiter.line(), "+PONG");
    cluster.is_ready();
    waiter.send(&ask);
    wait_until("b waits again", || home.blocked() == 1);
    replica.assert_reply("CLUSTER FAILOVER TAKEOVER", "OK");
    let reply = waiter.line();
    assert!(reply.starts_with("-UNBLOCKED "), "{reply}");
    if home.info("server", "valkey_version").starts_with("9.") {
        waiter.send("PING");
        assert_eq!(waiter.line(), "+PONG");
    } else {
        // The server itself has unblocked it, and closes the connection.
        assert_eq!(waiter.line_if_open(), None);
    }
}
