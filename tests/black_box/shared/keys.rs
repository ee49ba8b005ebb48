//! What is in the keys of a lock with several holders: on a replica, after a restart, on a server without the module.

use fairlock_testing::{Client, Server, follow, wait_until};

use crate::scene::AOF;

fn keys(client: &mut Client) -> Vec<String> {
    [
        "HGETALL k",
        "PEXPIRETIME k",
        "HGETALL redisson_lock_shared:{k}",
        "PEXPIRETIME redisson_lock_shared:{k}",
        "LRANGE redisson_lock_queue:{k} 0 -1",
        "FAIRLOCK.HOLDERS k",
    ]
    .iter()
    .map(|command| client.run(command))
    .map(|reply| {
        if reply.starts_with("(error) ERR unknown command") {
            String::new()
        } else {
            reply
        }
    })
    .collect()
}

fn busy_lock(server: &Server) {
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k w");
    for n in 0..4 {
        client.run(&format!(
            "FAIRLOCK.ACQUIRE k r{n} SHARED 3 ENQUEUE LEASE 600000"
        ));
    }
    client.run("FAIRLOCK.RELEASE k w");
    for n in 0..4 {
        client.run(&format!(
            "FAIRLOCK.ACQUIRE k r{n} SHARED 3 ENQUEUE LEASE 60000{n}"
        ));
    }
    client.int("FAIRLOCK.ACQUIRE k r1 SHARED 3");
    client.int("FAIRLOCK.RENEW k r2 LEASE 700000");
    client.run("FAIRLOCK.RELEASE k r0");
    client.run("FAIRLOCK.ACQUIRE k r3 SHARED 3 ENQUEUE LEASE 650000");
}

#[test]
fn the_keys_are_as_the_contract_says() {
    let (_server, mut client) = Server::connected();
    let a = client.int("FAIRLOCK.ACQUIRE k a SHARED LEASE 500000");
    let b = client.int("FAIRLOCK.ACQUIRE k b SHARED 7 LEASE 600000");
    client.assert_reply("HGET k a", "1");
    client.assert_reply("HGET k b", "1");
    client.assert_reply("TYPE redisson_lock_shared:{k}", "hash");
    let end = client.int("PEXPIRETIME k");
    let entry = client.run("HGET redisson_lock_shared:{k} b");
    assert_eq!(entry, format!("{end} 7 {b}"));
    assert!(
        client
            .run("HGET redisson_lock_shared:{k} a")
            .ends_with(&format!(" 0 {a}"))
    );
    client.run("FAIRLOCK.RELEASE k b");
    client.run("FAIRLOCK.RELEASE k a");
    client.assert_reply("KEYS *", "[]");
}

#[test]
fn a_killed_server_comes_back_with_the_same_holders() {
    let server = Server::with(AOF);
    busy_lock(&server);
    let before = keys(&mut server.connect());
    let server = server.kill_and_restart();
    let mut client = server.connect();
    assert_eq!(before[..4], keys(&mut client)[..4]);
    client.assert_reply("FAIRLOCK.ACQUIRE k z SHARED 3 NOWAIT", "(nil)");
    client.assert_reply("FAIRLOCK.RELEASE k r1 ALL", "0");
    client.assert_reply("FAIRLOCK.RELEASE k r2", "0");
    client.int("FAIRLOCK.ACQUIRE k z SHARED 3 NOWAIT");
}

#[test]
fn after_a_restart_leases_still_end_one_by_one() {
    let (server, mut client) = Server::connected_with(AOF);
    client.int("FAIRLOCK.ACQUIRE k a SHARED 2 LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED 2 LEASE 1500");
    let server = server.kill_and_restart();
    let mut client = server.connect();
    // No client asks: the server knows from the keys when the lease ends.
    wait_until("one lease has ended", || client.run("HEXISTS k b") == "0");
    client.assert_reply("HEXISTS k a", "1");
}

#[test]
fn a_server_without_the_module_sees_a_held_lock() {
    let server = Server::with(AOF);
    busy_lock(&server);
    let before = keys(&mut server.connect());
    let server = server.kill_and_restart_without_module(AOF);
    let mut client = server.connect();
    let after = keys(&mut client);
    assert_eq!(before[..4], after[..4]);
    client.assert_reply("EXISTS k", "1");
}

#[test]
fn a_replica_has_the_same_keys_and_shows_the_holders() {
    let master = Server::start();
    let replica = Server::start();
    follow(&replica, &master);
    busy_lock(&master);
    let mut client = master.connect();
    client.int("FAIRLOCK.ACQUIRE other x SHARED LEASE 600000");
    client.run("FAIRLOCK.BREAK other");
    client.run("SET done 1");
    let mut there = replica.connect();
    wait_until("the replica has all", || there.run("GET done") == "1");
    let (here, there_is) = (keys(&mut client), keys(&mut there));
    assert_eq!(here[..5], there_is[..5]);
    there.assert_start("FAIRLOCK.HOLDERS k", "[[r");
    there.assert_reply("FAIRLOCK.HOLDERS other", "[]");
    there.assert_reply("EXISTS other redisson_lock_shared:{other}", "0");
}

#[test]
fn a_replica_that_becomes_the_master_goes_on_with_the_holders() {
    let master = Server::start();
    let replica = Server::start();
    follow(&replica, &master);
    let mut client = master.connect();
    let token = client.int("FAIRLOCK.ACQUIRE k a SHARED 2 LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED 2 LEASE 3000");
    client.run("SET done 1");
    let mut there = replica.connect();
    wait_until("the replica has all", || there.run("GET done") == "1");
    drop(master);
    there.run("REPLICAOF NO ONE");
    let next = replica.block("FAIRLOCK.ACQUIRE k c SHARED 2 LEASE 600000");
    // The lease of b ends here.
    assert!(next.int() > token);
    there.assert_reply("HMGET k a b", "[1, (nil)]");
}

#[test]
fn databases_that_change_places_take_their_holders_along() {
    let (server, mut client) = Server::connected();
    let mut holder = server.connect();
    holder.int("FAIRLOCK.ACQUIRE k a SHARED SESSION LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED LEASE 600000");
    client.run("SWAPDB 0 1");
    client.assert_reply("FAIRLOCK.HOLDERS k", "[]");
    client.run("SELECT 1");
    assert_eq!(client.int("HLEN redisson_lock_shared:{k}"), 2);
    drop(holder);
    wait_until("the session has ended", || client.run("HEXISTS k a") == "0");
    client.assert_reply("HEXISTS k b", "1");
}

#[test]
fn every_change_is_announced() {
    let (server, mut client) = Server::connected_with(&["--notify-keyspace-events", "KEA"]);
    let events = Client::events(server.port, || {
        client.int("FAIRLOCK.ACQUIRE k a SHARED LEASE 600000");
        client.int("FAIRLOCK.ACQUIRE k b SHARED LEASE 600000");
        client.run("FAIRLOCK.RELEASE k b");
        client.run("FAIRLOCK.RELEASE k a");
    });
    let of = |name: &str| events.iter().filter(|event| event.contains(name)).count();
    assert_eq!(of("fairlock.acquire"), 2, "{events:?}");
    assert_eq!(of("fairlock.release"), 2, "{events:?}");
    assert!(of("hdel") >= 2, "{events:?}");
    assert!(of("del") >= 2, "{events:?}");
}

#[test]
fn loading_the_module_finds_the_holders() {
    let options = [AOF, &["--enable-module-command", "yes"]].concat();
    let (server, mut client) = Server::connected_with(&options);
    client.int("FAIRLOCK.ACQUIRE k a SHARED 2 LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED 2 LEASE 600000");
    let module = server.module_path();
    let server = server.kill_and_restart_without_module(&options);
    let mut client = server.connect();
    client.assert_reply(&format!("MODULE LOAD {module}"), "OK");
    client.assert_reply("FAIRLOCK.ACQUIRE k c SHARED NOWAIT", "(nil)");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    client.int("FAIRLOCK.ACQUIRE k c SHARED NOWAIT");
}
