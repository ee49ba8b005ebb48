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

/// Commands, and what each announces. The first hands the lock to `w`, the third leaves something to be repaired.
/// `{Q}`, `{Z}` and `{S}` stand for the keys of queue, deadlines and shared holders.
const STEPS: &str = "
    FAIRLOCK.RELEASE k a -> del k, fairlock.release k, hset k, expire k, lpop {Q}, del {Q}, zrem {Z}, del {Z}, fairlock.acquire k
    FAIRLOCK.RELEASE k w -> del k, fairlock.release k
    ZADD {Z} 1 dead -> zadd {Z}
    FAIRLOCK.CANCEL k a -> zrem {Z}, del {Z}
    FAIRLOCK.ACQUIRE k a -> hset k, expire k, fairlock.acquire k
    FAIRLOCK.ACQUIRE k b ENQUEUE -> zadd {Z}, rpush {Q}, fairlock.enqueue k
    FAIRLOCK.CANCEL k b -> lpop {Q}, del {Q}, zrem {Z}, del {Z}, fairlock.cancel k
    FAIRLOCK.BREAK k -> del k, fairlock.release k
    FAIRLOCK.ACQUIRE k a SHARED LEASE 500000 -> hset k, hset {S}, expire k, expire {S}, fairlock.acquire k
    FAIRLOCK.ACQUIRE k b SHARED LEASE 600000 -> hset k, hset {S}, expire k, fairlock.acquire k
    FAIRLOCK.RELEASE k b -> hdel k, hdel {S}, expire k, fairlock.release k
    FAIRLOCK.RELEASE k a -> del k, del {S}, fairlock.release k";

#[test]
fn changes_and_repairs_are_announced_as_the_plain_commands_would_in_their_order() {
    let (server, mut client) = Server::connected_with(&["--notify-keyspace-events", "KEA"]);
    client.int("FAIRLOCK.ACQUIRE k a");
    let _waiter = server.block("FAIRLOCK.ACQUIRE k w");
    for case in STEPS.trim().lines() {
        let case = case
            .replace("{Q}", "redisson_lock_queue:{k}")
            .replace("{Z}", "redisson_lock_timeout:{k}")
            .replace("{S}", "redisson_lock_shared:{k}");
        let (command, expected) = case.trim().split_once(" -> ").expect("two parts");
        let events = Client::events(server.port, || drop(client.run(command)));
        assert_eq!(events.join(", "), expected, "{command}");
    }
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
