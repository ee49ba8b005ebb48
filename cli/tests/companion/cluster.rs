//! A cluster of three masters: any of its nodes will do.

use fairlock_testing::cluster::{Cluster, Node};
use fairlock_testing::wait_until;

use crate::metrics::{get, listening, read};
use crate::program::Program;

/// A lock on each of the masters.
const LOCKS: [&str; 3] = ["b", "c", "a"];

/// Three masters, each with a third of the slots. The others do not declare a stopped one dead during the test.
fn cluster() -> [Node; 3] {
    let cluster = Cluster::start(3, 0, &["--cluster-node-timeout", "15000"]);
    let masters = cluster.masters.try_into();
    masters.unwrap_or_else(|_| panic!("three masters"))
}

#[test]
fn a_lock_is_held_and_waited_for_and_lost_at_its_own_master() {
    let servers = cluster();
    for (server, lock) in servers.iter().zip(LOCKS) {
        let script = format!("redis-cli -p {} EXISTS {lock}", server.port);
        let args = ["exec", lock, "--", "sh", "-c", &script];
        assert_eq!(Program::ended(servers[1].port, &args).said(), "1\n");
    }
    let [asked, master, _] = &servers;
    let script = "echo ready; exec sleep 100";
    let holder = Program::start(asked.port, &["exec", "c", "--", "sh", "-c", script]);
    holder.wait_for("ready\n");
    let waiter = Program::start(asked.port, &["exec", "c", "--", "true"]);
    wait_until("it waits", || master.blocked() == 1);
    master.run("FAIRLOCK.BREAK c");
    assert_eq!(holder.end().code, 76);
    assert_eq!(waiter.end().code, 0);
    // What is not there while its slot moves has to be asked for again.
    let slot = master.run("CLUSTER KEYSLOT c");
    master.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", asked.id));
    let patient = ["exec", "c", "--reconnect", "10m", "--", "true"];
    let early = Program::start(asked.port, &patient);
    early.wait_for_error("refuses: ASK ");
    master.run(&format!("CLUSTER SETSLOT {slot} STABLE"));
    early.end().failed(0, "Asking again");
}

#[test]
fn all_masters_are_asked_and_one_that_is_gone_does_not_hide_the_others() {
    let mut servers = cluster();
    for (server, lock) in servers.iter().zip(LOCKS) {
        server.run(&format!("FAIRLOCK.ACQUIRE {lock} ann LEASE 600000"));
        server.run(&format!("FAIRLOCK.ACQUIRE {lock} bob ENQUEUE"));
    }
    let port = servers[1].port;
    let nodes = servers
        .each_ref()
        .map(|server| format!("127.0.0.1:{}", server.port));
    let out = |args: &[&str]| Program::ended(port, args).said();
    let top = ["top", "--once", "--interval", "10ms", "--sort", "name"];
    let shown = out(&top);
    let names: Vec<_> = shown.lines().skip(1).map(|line| &line[..1]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(shown.contains(&format!(" node={}\n", nodes[0])), "{shown}");
    assert_eq!(out(&["locks", "--json"]).lines().count(), 3);
    let metrics = read(&out(&["metrics"]));
    for node in &nodes {
        assert_eq!(metrics[&format!("up{{node={node}}}")], 1.0);
        let taken = format!("acquisitions_total{{way=immediate,node={node}}}");
        assert_eq!(metrics[&taken], 1.0);
    }
    for lock in ["a", "b"] {
        assert!(out(&["info", lock]).contains("holder   ann "));
        assert!(out(&["break", lock]).contains(" was held by ann; it is free now"));
    }

    let (_program, listens) = listening(&servers[2]);
    assert_eq!(get(listens, "/metrics").0, 200);
    servers[2].signal("KILL");
    servers[2].exit_code();
    let gone = format!("cannot reach the server at {}", nodes[2]);
    let ended = Program::ended(port, &top);
    assert_eq!(ended.code, 69, "{ended:?}");
    assert!(
        ended.out.contains(&gone) && ended.out.contains("\nc holder=ann "),
        "{ended:?}"
    );
    let ended = Program::ended(port, &["locks"]);
    ended.failed(69, &gone);
    assert!(ended.out.contains("c holder=ann "), "{ended:?}");
    let ended = Program::ended(port, &["metrics"]);
    ended.failed(69, &gone);
    let rest = read(&ended.out);
    for (node, up) in nodes.iter().zip([1.0, 1.0, 0.0]) {
        assert_eq!(rest[&format!("up{{node={node}}}")], up);
    }
    let gone = rest.keys().filter(|sample| sample.contains(&nodes[2]));
    let known: Vec<_> = gone.filter_map(|sample| sample.split('{').next()).collect();
    assert_eq!(known, ["up"]);
    // It was given the server that is gone, and has learnt of the others.
    assert_eq!(read(&get(listens, "/metrics").1), rest);
}
