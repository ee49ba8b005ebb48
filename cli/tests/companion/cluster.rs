//! A cluster of three masters: any of its nodes will do.

use fairlock_testing::cluster::{Cluster, Node};
use fairlock_testing::wait_until;

use crate::program;

#[test]
fn a_lock_is_asked_for_at_its_own_master_and_all_that_answer_are_shown() {
    // The others do not declare a stopped one dead during the test.
    let mut servers = Cluster::start(3, 0, &["--cluster-node-timeout", "15000"]).masters;
    let (asked, master) = (&servers[0], &servers[1]);
    let holder = program::start(asked.port, "exec c -- sh -c 'echo ready; exec sleep 100'");
    holder.wait_for("ready\n");
    let waiter = program::start(asked.port, "exec c -- true");
    wait_until("it waits", || master.blocked() == 1);
    master.run("FAIRLOCK.BREAK c");
    assert_eq!(holder.end().code, 76);
    assert_eq!(waiter.end().code, 0);
    // What is not there while its slot moves has to be asked for again.
    let slot = master.run("CLUSTER KEYSLOT c");
    master.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", asked.id));
    let early = program::start(asked.port, "exec c --reconnect 10m -- true");
    early.wait_for_error("refuses: ASK ");
    master.run(&format!("CLUSTER SETSLOT {slot} STABLE"));
    early.end().failed(0, "Asking again");

    // A lock on each of the masters.
    for (server, lock) in servers.iter().zip(["b", "c", "a"]) {
        server.run(&format!("FAIRLOCK.ACQUIRE {lock} ann LEASE 600000"));
        server.run(&format!("FAIRLOCK.ACQUIRE {lock} bob ENQUEUE"));
        server.run(&format!("FAIRLOCK.ACQUIRE {{{lock}}}:2 ann LEASE 600000"));
    }
    let port = servers[1].port;
    let nodes: Vec<_> = servers.iter().map(Node::address).collect();
    let out = |arguments: &str| program::ended(port, arguments).said();
    let top = "top --once --interval 10ms --sort name";
    let shown = out(top);
    let names: Vec<_> = shown.lines().skip(1).map(|line| &line[..1]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(shown.contains(&format!(" node={}\n", nodes[0])), "{shown}");
    assert_eq!(out("locks --json").lines().count(), 6);
    for lock in ["a", "b"] {
        assert!(out(&format!("info {lock}")).contains("holder   ann "));
        let broken = out(&format!("break {lock}"));
        assert!(broken.contains(" was held by ann; it is free now"));
    }

    let waiter = program::start(servers[2].port, "exec c -- true");
    wait_until("it waits", || servers[1].blocked() == 1);
    servers[2].signal("KILL");
    servers[2].exit_code();
    // The server that it was given is gone; it has learnt of the others.
    servers[1].run("CLIENT KILL TYPE normal");
    waiter.wait_for_error("Asking again");
    wait_until("it waits again", || servers[1].blocked() == 1);
    let gone = format!("cannot reach the server at {}", nodes[2]);
    for arguments in [top, "locks"] {
        let ended = program::ended(port, arguments);
        // `top` says it among the lines.
        let says = [&ended.out, &ended.errors].map(|said| said.contains(&gone));
        assert_eq!(says, [arguments == top, arguments != top], "{ended:?}");
        assert_eq!(ended.code, 69);
        assert!(ended.out.contains("c holder=ann "), "{ended:?}");
    }
}
