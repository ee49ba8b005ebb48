//! What is in the keys of a lock with several holders, and a server that finds it there. What restarts and replicas
//! keep of it is in `server::persistence` and `server::replication`.

use fairlock_testing::Server;

use crate::scene::AOF;

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
fn after_a_restart_leases_still_end_one_by_one() {
    let (server, mut client) = Server::connected_with(AOF);
    client.int("FAIRLOCK.ACQUIRE k a SHARED 2 LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED 2 LEASE 1500");
    let server = server.kill_and_restart();
    let mut client = server.connect();
    // No client asks: the server knows from the keys when the lease ends.
    client.wait_for("HEXISTS k b", "0");
    client.assert_reply("HEXISTS k a", "1");
}
