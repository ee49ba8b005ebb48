//! What others do to the keys of a lock with several holders.

use fairlock_testing::{Client, Server, wait_until};

fn two_of_two(server: &Server) -> Client {
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a SHARED 2 LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED 2 LEASE 600000");
    client
}

#[test]
fn hdel_of_one_holder_lets_the_next_in() {
    let server = Server::start();
    let mut client = two_of_two(&server);
    let next = server.block("FAIRLOCK.ACQUIRE k c SHARED 2 LEASE 600000");
    client.assert_reply("HDEL k a", "1");
    next.int();
    client.assert_reply("HEXISTS redisson_lock_shared:{k} a", "0");
    assert_eq!(client.int("HLEN redisson_lock_shared:{k}"), 2);
}

#[test]
fn whatever_takes_all_holders_away_frees_the_lock() {
    for command in [
        "DEL k",
        "UNLINK k",
        "RENAME k elsewhere",
        "FLUSHALL",
        "FLUSHDB",
        "HDEL k a b",
    ] {
        let server = Server::start();
        // Also without a waiter.
        two_of_two(&server).run(command);
        server
            .connect()
            .wait_for("EXISTS redisson_lock_shared:{k}", "0");
        server.connect().run("FLUSHALL");
        let mut client = two_of_two(&server);
        let writer = server.block("FAIRLOCK.ACQUIRE k w LEASE 600000");
        client.run(command);
        assert!(writer.int() > 0, "{command}");
        assert_eq!(client.holders("k"), "[w, 1]", "{command}");
        wait_until("the holders are forgotten", || {
            client.run("EXISTS redisson_lock_shared:{k}") == "0"
        });
    }
}

#[test]
fn the_shared_holders_key_is_written_again() {
    let server = Server::start();
    let mut client = two_of_two(&server);
    let before = client.run("HGETALL redisson_lock_shared:{k}");
    client.run("DEL redisson_lock_shared:{k}");
    wait_until("it is back", || {
        client.run("HLEN redisson_lock_shared:{k}") == "2"
    });
    assert_eq!(
        client.run("HGETALL redisson_lock_shared:{k}").len(),
        before.len()
    );
    assert!(client.int("PTTL redisson_lock_shared:{k}") > 0);
    client.assert_reply("FAIRLOCK.ACQUIRE k c SHARED 2 NOWAIT", "(nil)");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    client.int("FAIRLOCK.ACQUIRE k c SHARED 2 NOWAIT");
}

#[test]
fn a_key_of_another_type_is_refused() {
    let (_server, mut client) = Server::connected();
    client.run("SET redisson_lock_shared:{k} text");
    for command in [
        "FAIRLOCK.ACQUIRE k a SHARED",
        "FAIRLOCK.HOLDERS k",
        "FAIRLOCK.INFO k",
    ] {
        client.assert_start(command, "(error) WRONGTYPE");
    }
    client.assert_reply("GET redisson_lock_shared:{k}", "text");
    client.assert_reply("EXISTS k", "0");
}

#[test]
fn a_shorter_expiry_cuts_the_leases_and_a_longer_one_keeps_the_lock() {
    let server = Server::start();
    let mut client = two_of_two(&server);
    client.run("PEXPIRE k 900000");
    wait_until("it is noticed", || {
        client.run("FAIRLOCK.HOLDERS k").contains(", 89")
    });
    client.run("PEXPIRE k 200");
    let writer = server.block("FAIRLOCK.ACQUIRE k w LEASE 600000");
    writer.int();
    client.assert_reply("EXISTS redisson_lock_shared:{k}", "0");
}

#[test]
fn a_holder_that_others_have_written_counts_as_exclusive_and_gets_a_token_when_it_asks() {
    let server = Server::start();
    let mut client = two_of_two(&server);
    client.run("HSET k c 1");
    client.assert_reply("FAIRLOCK.ACQUIRE k d SHARED NOWAIT", "(nil)");
    let holders = client.run("FAIRLOCK.HOLDERS k");
    assert!(holders.contains("[c, 1, "), "{holders}");
    assert!(holders.contains(", (nil), 0, 1]"), "{holders}");
    let token = client.int("FAIRLOCK.ACQUIRE k c ONCE");
    assert!(token > 0);
    client.assert_has("FAIRLOCK.HOLDERS k", &token.to_string());
    client.assert_reply("FAIRLOCK.RELEASE k c", "0");
    assert_eq!(client.int("HLEN redisson_lock_shared:{k}"), 2);
}

#[test]
fn another_programs_hash_in_the_lock_s_place_is_left_alone() {
    for (data, expires) in [
        ("name bob", 0),
        ("name bob visits 7", 0),
        ("name bob", 600_000),
    ] {
        let server = Server::start();
        let mut client = two_of_two(&server);
        client.run(&format!("HSET data {data}"));
        if expires > 0 {
            client.run(&format!("PEXPIRE data {expires}"));
        }
        client.run("RENAME data k");
        for command in ["FAIRLOCK.ACQUIRE k z NOWAIT", "FAIRLOCK.BREAK k FORCE"] {
            client.assert_start(command, "(error) NOTALOCK");
        }
        client.assert_start("FAIRLOCK.RELEASE k a", "(error) NOT");
        client.assert_reply("HGET k name", "bob");
        assert_eq!(client.int("PTTL k") > 0, expires > 0);
        client.assert_reply("EXISTS redisson_lock_shared:{k}", "0");
    }
}

#[test]
fn entries_without_holders_do_not_make_a_lock_shared_and_do_not_stay() {
    let (_server, mut client) = Server::connected();
    let key = b"redisson_lock_shared:{k}";
    let entries: [&[u8]; 6] = [b"HSET", key, b"o", b"1 0 1", b"b", b"junk"];
    client.raw(&entries).expect("set");
    let token = client.int("FAIRLOCK.ACQUIRE k o LEASE 60000");
    client.assert_reply("FAIRLOCK.ACQUIRE k x SHARED NOWAIT", "(nil)");
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k o"), token);
    assert_eq!(client.int("FAIRLOCK.ACQUIRE k o SHARED"), token);
    client.assert_reply(&format!("FAIRLOCK.RELEASE k o TOKEN {token} ALL"), "0");
    for owner in ["c", "d"] {
        client.int(&format!("FAIRLOCK.ACQUIRE k {owner} SHARED"));
    }
    for owner in ["c", "d"] {
        client.assert_reply(&format!("FAIRLOCK.RELEASE k {owner}"), "0");
    }
    client.wait_for("DBSIZE", "0");
}

#[test]
fn a_lock_whose_shared_holders_key_has_another_type_goes_on_when_its_lease_ends() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k r SHARED LEASE 1500");
    let next = server.block("FAIRLOCK.ACQUIRE k w");
    client.run("SET redisson_lock_shared:{k} x");
    assert!(next.int() > 0);
    client.assert_reply("GET redisson_lock_shared:{k}", "x");
}

/// As Redisson's script does.
#[test]
fn a_holder_that_others_give_a_hold_and_an_expiry_keeps_its_holds_apart() {
    let server = Server::start();
    let mut client = two_of_two(&server);
    client.at_once(&["HINCRBY k a 1", "PEXPIRE k 900000"]);
    wait_until("the expiry is some holder's lease", || {
        client.run("FAIRLOCK.HOLDERS k").contains(", 89")
    });
    client.assert_reply("FAIRLOCK.RELEASE k b", "0");
    client.assert_reply("FAIRLOCK.RELEASE k a", "1");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    client.assert_reply("DBSIZE", "0");
}
