//! Key events: those of the plain commands, and the module's own, which are looked at in `stats` as well.

use fairlock_testing::{Client, Server, wait_until};

/// The module's own events during some steps, without their prefix.
pub fn own_events(server: &Server, steps: impl FnOnce()) -> Vec<String> {
    let all = Client::events(server.port, steps);
    let names = all
        .iter()
        .map(|event| event.trim_start_matches("fairlock."));
    names.map(str::to_owned).collect()
}

/// A server that announces the module's own events, and nothing else.
pub fn announcing(options: &[&str]) -> Server {
    Server::with(&[&["--notify-keyspace-events", "KEd"], options].concat())
}

#[test]
fn changes_are_announced_as_the_plain_commands_would() {
    let (server, mut client) = Server::connected_with(&["--notify-keyspace-events", "KEA"]);
    let events = Client::events(server.port, || {
        client.int("FAIRLOCK.ACQUIRE k a");
        client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
        client.int("FAIRLOCK.CANCEL k b");
        client.int("FAIRLOCK.RELEASE k a");
    });
    let expected = [
        "hset k",
        "expire k",
        "fairlock.acquire k",
        "zadd redisson_lock_timeout:{k}",
        "rpush redisson_lock_queue:{k}",
        "fairlock.enqueue k",
        "lpop redisson_lock_queue:{k}",
        "del redisson_lock_queue:{k}",
        "zrem redisson_lock_timeout:{k}",
        "del redisson_lock_timeout:{k}",
        "fairlock.cancel k",
        "del k",
        "fairlock.release k",
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_hand_off_is_announced_in_the_order_in_which_it_happens() {
    let (server, mut client) = Server::connected_with(&["--notify-keyspace-events", "KEA"]);
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    let events = Client::events(server.port, || {
        client.int("FAIRLOCK.RELEASE k a");
        waiter.int();
    });
    let expected = [
        "del k",
        "fairlock.release k",
        "hset k",
        "expire k",
        "lpop redisson_lock_queue:{k}",
        "del redisson_lock_queue:{k}",
        "zrem redisson_lock_timeout:{k}",
        "del redisson_lock_timeout:{k}",
        "fairlock.acquire k",
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_repair_is_announced_as_the_plain_commands_would() {
    let (server, mut client) = Server::connected_with(&["--notify-keyspace-events", "KEA"]);
    client.run("ZADD redisson_lock_timeout:{k} 1 dead");
    let events = Client::events(server.port, || {
        client.int("FAIRLOCK.CANCEL k a");
    });
    let expected = [
        "zrem redisson_lock_timeout:{k}",
        "del redisson_lock_timeout:{k}",
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_replica_announces_nothing_of_its_own() {
    let master = Server::start();
    let replica = announcing(&[]);
    let mut client = replica.connect();
    client.run(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    let events = own_events(&replica, || {
        master.connect().int("FAIRLOCK.ACQUIRE k a");
        wait_until("the lock is there", || client.run("EXISTS k") == "1");
        master.connect().int("FAIRLOCK.RELEASE k a");
        wait_until("the lock is free", || client.run("EXISTS k") == "0");
    });
    assert_eq!(events, [""; 0]);
}
