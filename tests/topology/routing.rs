//! Every command goes to the node of its lock's key.

use fairlock_testing::cluster::Cluster;
use fairlock_testing::commands::{SCRIPTS, calls_of_a_lock, on};

#[test]
fn every_command_is_sent_to_the_node_of_its_lock() {
    let cluster = Cluster::start(3, 0, &[]);
    let keys = "COMMAND GETKEYS FAIRLOCK.EVAL s 2 orders {orders}:x orders";
    cluster.masters[0].assert_reply(keys, "[orders, {orders}:x]");
    let scripts = SCRIPTS.map(str::to_owned);
    for lock in ["orders", "shop{7}:x", "{a}"] {
        let (slot, home) = (cluster.slot(lock), cluster.home(lock));
        let moved = format!("(error) MOVED {slot} {}", cluster.masters[home].address());
        for (number, node) in cluster.masters.iter().enumerate() {
            for command in calls_of_a_lock().into_iter().chain(scripts.clone()) {
                let command = on(&command, lock);
                let reply = node.connect().run(&command);
                assert_eq!(reply == moved, number != home, "{command}: {reply}");
            }
        }
    }
}

#[test]
fn a_replica_shows_the_lock_to_those_who_ask_it_to_and_sends_others_to_its_master() {
    let cluster = Cluster::start(3, 1, &[]);
    let home = cluster.home("orders");
    let (master, replica) = (&cluster.masters[home], &cluster.replicas[home]);
    let mut client = master.connect();
    client.int("FAIRLOCK.ACQUIRE orders a");
    client.run("FAIRLOCK.ACQUIRE orders b ENQUEUE");
    client.assert_reply("WAIT 1 30000", "1");
    let mut reader = replica.connect();
    let moved = format!(
        "(error) MOVED {} {}",
        cluster.slot("orders"),
        master.address()
    );
    reader.assert_reply("FAIRLOCK.QUEUE orders", &moved);
    reader.run("READONLY");
    reader.assert_start("FAIRLOCK.QUEUE orders", "[[b, polling, ");
    reader.assert_start("FAIRLOCK.INFO orders", "[owner, a, ");
    reader.assert_reply("FAIRLOCK.ACQUIRE orders b ENQUEUE", &moved);
}
