//! Names in a cluster, and pauses of writes there.

use fairlock_testing::commands::{calls_of_a_lock, on};
use fairlock_testing::{Client, Server, wait_until};

/// Makes a node a cluster of one.
pub fn give_all_slots(client: &mut Client) {
    client.run("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_until("the cluster is up", || {
        client.run("CLUSTER INFO").contains("cluster_state:ok")
    });
}

fn cluster_of_one() -> (Server, Client) {
    let (server, mut client) = Server::connected_with(&["--cluster-enabled", "yes"]);
    give_all_slots(&mut client);
    (server, client)
}

#[test]
fn a_cluster_refuses_names_whose_keys_would_be_in_other_slots() {
    let (_server, mut client) = cluster_of_one();
    for key in ["a{b", "{}x", "a}b", "x{}y"] {
        for call in calls_of_a_lock() {
            client.assert_error(&on(&call, key), "CROSSSLOT");
        }
    }
}

#[test]
fn outside_a_cluster_any_name_will_do() {
    let (_server, mut client) = Server::connected();
    for key in ["a{b", "{}x", "a}b", "x{}y"] {
        assert!(client.int(&format!("FAIRLOCK.ACQUIRE {key} a")) > 0);
        client.assert_reply(&format!("FAIRLOCK.RELEASE {key} a"), "0");
    }
}

/// Valkey tells what a pause is for, since 8.1. Redis does not: it could be for a replica that takes over.
#[test]
fn a_wait_that_runs_out_in_a_pause_is_answered_when_it_is_known_that_it_has_left() {
    let (server, mut client) = cluster_of_one();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    // Not over before the pause begins.
    let waiter = server.block("FAIRLOCK.ACQUIRE k b WAIT 6000");
    let asked = client.now();
    client.assert_reply("CLIENT PAUSE 600000 WRITE", "OK");
    wait_until("the time is up", || client.now() > asked + 6000);
    if server.info("clients", "paused_reason").is_empty() {
        assert!(!waiter.is_done());
        client.assert_reply("CLIENT UNPAUSE", "OK");
    }
    assert_eq!(waiter.reply(), "(nil)");
    client.assert_reply("CLIENT UNPAUSE", "OK");
    wait_until("b has left", || {
        client.run("LRANGE redisson_lock_queue:{k} 0 -1") == "[]"
    });
}
