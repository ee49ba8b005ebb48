//! A cluster of three masters: any of its nodes will do.

use fairlock_testing::cluster::{Cluster, Node};
use fairlock_testing::wait_until;

use crate::program::{Program, connection, kill_connection};

/// A lock on each of the masters.
const LOCKS: [&str; 3] = ["b", "c", "a"];

/// Three masters, each with a third of the slots. The others do not declare a stopped one dead during the test.
pub fn cluster() -> [Node; 3] {
    let cluster = Cluster::start(3, 0, &["--cluster-node-timeout", "15000"]);
    let masters = cluster.masters.try_into();
    masters.unwrap_or_else(|_| panic!("three masters"))
}

#[test]
fn a_lock_is_found_wherever_it_is() {
    let servers = cluster();
    for asked in &servers {
        for (server, lock) in servers.iter().zip(LOCKS) {
            let script = format!("redis-cli -p {} EXISTS {lock}; exit 9", server.port);
            let ended = Program::ended(asked.port, &["exec", lock, "--", "sh", "-c", &script]);
            assert_eq!((ended.code, ended.out.as_str()), (9, "1\n"), "{ended:?}");
        }
    }
}

#[test]
fn a_lock_is_lost_and_waited_for_at_its_own_master() {
    let servers = cluster();
    let [asked, master, _] = &servers;
    let mut client = master.connect();
    let script = "echo ready; exec sleep 100";
    let holder = Program::start(asked.port, &["exec", "c", "--", "sh", "-c", script]);
    holder.wait_for("ready\n");
    let waiter = Program::start(asked.port, &["exec", "c", "--", "true"]);
    wait_until("it waits", || master.blocked() == 1);
    kill_connection(&mut client, connection(master, " flags=b "));
    waiter.wait_for_error("was cut short");
    wait_until("it waits again", || master.blocked() == 1);
    client.run("FAIRLOCK.BREAK c");
    assert_eq!(holder.end().code, 76);
    assert_eq!(waiter.end().code, 0);
}

#[test]
fn in_a_cluster_any_node_will_do() {
    let servers = cluster();
    for (server, lock) in servers.iter().zip(["b", "c", "a"]) {
        server.run(&format!("FAIRLOCK.ACQUIRE {lock} ann LEASE 600000"));
        server.run(&format!("FAIRLOCK.ACQUIRE {lock} bob ENQUEUE"));
    }
    let port = servers[1].port;
    let out = |args: &[&str]| {
        let ended = Program::ended(port, args);
        assert_eq!((ended.code, ended.errors.as_str()), (0, ""), "{ended:?}");
        ended.out
    };
    let top = out(&["top", "--once", "--interval", "10ms", "--sort", "name"]);
    let names: Vec<_> = top.lines().skip(1).map(|line| &line[..1]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let node = format!(" node=127.0.0.1:{}\n", servers[0].port);
    assert!(top.contains(&node), "{top}");
    for command in ["locks", "info"] {
        assert_eq!(out(&[command, "--json"]).lines().count(), 3);
    }
    for lock in ["a", "b", "c"] {
        assert!(out(&["info", lock]).contains("holder   ann "));
        assert!(out(&["break", lock]).contains(" was held by ann; it is free now"));
    }
}

#[test]
fn a_master_that_is_gone_does_not_hide_the_others() {
    let mut servers = cluster();
    let mut holder = servers[0].connect();
    holder.int("FAIRLOCK.ACQUIRE b me SESSION");
    servers[2].signal("KILL");
    servers[2].exit_code();
    let gone = format!("127.0.0.1:{}", servers[2].port);
    let ended = Program::ended(servers[1].port, &["top", "--once", "--interval", "10ms"]);
    assert_eq!(ended.code, 69, "{ended:?}");
    assert!(ended.out.contains("\nb holder=me "), "{ended:?}");
    assert!(
        ended
            .out
            .contains(&format!("cannot reach the server at {gone}")),
        "{ended:?}"
    );
}
