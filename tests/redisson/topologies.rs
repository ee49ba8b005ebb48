//! Redisson's clients and FAIRLOCK's own on one lock, on one server, on a master with replicas,
//! and in a cluster.

use fairlock_testing::cluster::Cluster;
use fairlock_testing::redisson::{Driver, each_release};
use fairlock_testing::{Blocked, Server, follow};

use crate::conformance::{nothing_is_left, queue, wait_for_queue};
use crate::interception::Interception;

fn each_setting(test: impl Fn(&str, Interception)) {
    Interception::each(|interception| each_release(|release| test(release, interception)));
}

/// A lock goes from a Redisson client to another, to a client that blocks in the server, and back.
fn goes_from_hand_to_hand(server: &Server, a: &Driver, b: &Driver, lock: &str) {
    let mut client = server.connect();
    assert_eq!(a.run("1", &format!("lock {lock}")), "true");
    let second = queue(&mut client, b, "1", &format!("lock {lock}"));
    let third = Blocked::send(server.port, &format!("FAIRLOCK.ACQUIRE {lock} blocked"));
    wait_for_queue(&mut client, lock, 2);
    let fourth = queue(&mut client, a, "2", &format!("tryLock {lock} 60000 60000"));
    assert_eq!(b.run("2", &format!("tryLock {lock} 100 60000")), "false");

    assert_eq!(a.run("1", &format!("unlock {lock}")), "done");
    assert_eq!(second.get(), "true");
    assert!(!third.is_done());
    assert_eq!(b.run("1", &format!("unlock {lock}")), "done");
    assert!(third.int() > 0);
    assert_eq!(fourth.poll(), None);
    assert_eq!(client.int(&format!("FAIRLOCK.RELEASE {lock} blocked")), 0);
    assert_eq!(fourth.get(), "true");
    assert_eq!(a.run("2", &format!("holdCount {lock}")), "1");
    assert_eq!(a.run("2", &format!("unlock {lock}")), "done");
    nothing_is_left(&mut client);
}

#[test]
fn one_server() {
    each_setting(|release, interception| {
        let server = interception.server(&[]);
        let [a, b] = Driver::several([release; 2], &server, &[]);
        goes_from_hand_to_hand(&server, &a, &b, "k");
        goes_from_hand_to_hand(&server, &a, &b, "shop{7}:x");
    });
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn a_master_with_two_replicas() {
    each_setting(|release, interception| {
        let servers = [(); 3].map(|()| interception.server(&[]));
        let [master, replicas @ ..] = &servers;
        for replica in replicas {
            follow(replica, master);
        }
        let ports = servers.each_ref().map(|server| server.port);
        let [a, b] = Driver::of("replicated", &ports, [release; 2], &[]);
        goes_from_hand_to_hand(master, &a, &b, "k");
        for replica in replicas {
            nothing_is_left(&mut replica.connect());
        }
        // Since 3.12.5 clients wait for replicas, if they know of them.
        let waits = master.command_stat("wait", "calls") > 0;
        assert_eq!(waits, !release.starts_with("3.11."), "{release}");
    });
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn a_cluster_of_three_masters() {
    each_setting(|release, interception| {
        // Old clients receive one kind of message, new ones the other. No token is ahead of the clock, and kept.
        let options = ["--fairlock.pubsub", "both", "--fairlock.clock-skew", "0"];
        let cluster = Cluster::start(3, 0, &[&interception.options()[..], &options].concat());
        let ports: Vec<u16> = cluster.nodes().map(|node| node.port).collect();
        let [a, b] = Driver::of("cluster", &ports, [release; 2], &[]);
        // One for each master.
        for (server, lock) in cluster.masters.iter().zip(["b", "c", "a"]) {
            assert_eq!(server.connect().run(&format!("EXISTS {lock}")), "0");
            goes_from_hand_to_hand(server, &a, &b, lock);
        }
    });
}
