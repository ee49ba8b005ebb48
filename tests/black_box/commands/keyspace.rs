//! The keyspace: after any steps the four keys show what the contract's table says.

use fairlock_testing::{Client, Server};

use crate::scene::AOF;

#[test]
fn a_lock_with_waiters_has_the_three_keys_of_the_table() {
    let (server, mut client) = Server::connected();
    let token = client.int("FAIRLOCK.ACQUIRE orders a LEASE 60000");
    client.run("FAIRLOCK.ACQUIRE orders b ENQUEUE PATIENCE 70000");
    let _blocked = server.block("FAIRLOCK.ACQUIRE orders c PATIENCE 80000");
    client.assert_reply("TYPE orders", "hash");
    client.assert_reply("HGETALL orders", &format!("[a, 1, , {token}]"));
    assert!((50_000..=60_000).contains(&client.int("PTTL orders")));
    client.assert_reply("LRANGE redisson_lock_queue:{orders} 0 -1", "[b, c]");
    client.assert_reply("TTL redisson_lock_queue:{orders}", "-1");
    client.assert_reply("ZRANGE redisson_lock_timeout:{orders} 0 -1", "[b, c]");
    let b = client.int("ZSCORE redisson_lock_timeout:{orders} b");
    let c = client.int("ZSCORE redisson_lock_timeout:{orders} c");
    // The lease's end, and each one's patience times its position.
    assert!((89_000..=91_000).contains(&(c - b)), "{b} {c}");
    assert_eq!(client.int("DBSIZE"), 3);
}

#[test]
fn a_name_with_a_brace_is_not_wrapped() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE shop{7}:x a");
    client.run("FAIRLOCK.ACQUIRE shop{7}:x b ENQUEUE");
    client.assert_reply("LRANGE redisson_lock_queue:shop{7}:x 0 -1", "[b]");
    client.assert_reply("ZCARD redisson_lock_timeout:shop{7}:x", "1");
    assert_eq!(client.int("DBSIZE"), 3);
}

#[test]
fn a_queue_that_is_found_is_that_of_k_unless_only_the_name_in_braces_is_held() {
    for (held, expected) in [("", "k"), ("k", "k"), ("{k}", "{k}"), ("k {k}", "k")] {
        let (_server, mut client) = Server::connected_with(&["--fairlock.intercept-eval", "yes"]);
        for lock in held.split_whitespace() {
            client.int(&format!("FAIRLOCK.ACQUIRE {lock} o"));
        }
        client.run("RPUSH redisson_lock_queue:{k} w");
        let listed = client.run("FAIRLOCK.LOCKS");
        assert!(
            listed.contains(&format!("[name, {expected}, ")),
            "{held}: {listed}"
        );
        assert_eq!(listed.matches("name, ").count(), 1, "{held}: {listed}");
        // A command on the other one is refused while that one is held.
        let other = if expected == "k" { "{k}" } else { "k" };
        let reply = client.run(&format!("FAIRLOCK.CANCEL {other} x"));
        assert_eq!(
            reply.starts_with("(error) ERR "),
            !held.is_empty(),
            "{held}: {reply}"
        );
    }
}

#[test]
fn a_client_stays_in_its_database_whatever_it_moves_and_copies() {
    let server = Server::start();
    let (mut client, mut other) = (server.connect(), server.connect());
    for command in ["COPY x y DB 3", "COPY x y DB 4", "MOVE x 5", "MOVE x 6"] {
        client.run("SELECT 2");
        client.run("SET x 1");
        client.assert_reply(command, "1");
        other.assert_has(&format!("CLIENT LIST ID {}", client.id), " db=2 ");
    }
    client.run("SET x 1");
    assert_eq!(client.at_once(&["MOVE x 7", "SET here 1"]), "[1, OK]");
    other.run("SELECT 2");
    other.assert_reply("EXISTS here", "1");
    let script = "redis.call('MOVE', 'here', 7) return redis.call('EXISTS', 'y')";
    let run = client.raw(&[b"EVAL", script.as_bytes(), b"0"]);
    assert_eq!(run, Ok(redis::Value::Int(0)));
}

/// How the server keeps the deadlines of `k`, and the two hashes of the holders of `s`.
fn encodings(client: &mut Client) -> [String; 3] {
    let keys = ["redisson_lock_timeout:{k}", "s", "redisson_lock_shared:{s}"];
    keys.map(|key| client.run(&format!("OBJECT ENCODING {key}")))
}

#[test]
fn among_many_a_waiter_or_a_holder_is_found_without_a_walk() {
    const COMPACT: [&str; 3] = ["listpack"; 3];
    const WIDE: [&str; 3] = ["skiplist", "hashtable", "hashtable"];
    let (server, mut client) = Server::connected_with(AOF);
    let ask = |n| {
        [
            format!("FAIRLOCK.ACQUIRE k w{n} ENQUEUE"),
            format!("FAIRLOCK.ACQUIRE s r{n} SHARED LEASE 600000"),
        ]
    };
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.run_many((0..8).flat_map(ask));
    assert_eq!(encodings(&mut client), COMPACT);
    client.run_many((8..20).flat_map(ask));
    assert_eq!(encodings(&mut client), WIDE);
    // The temporary elements for that are gone, here and after a restart.
    let members = "ZRANGE redisson_lock_timeout:{k} 0 -1 WITHSCORES";
    let before = client.run(members);
    assert_eq!(client.int("ZCARD redisson_lock_timeout:{k}"), 20);
    assert_eq!(client.int("HLEN s"), 21);
    let server = server.kill_and_restart();
    let mut client = server.connect();
    client.assert_reply(members, &before);
    client.assert_reply("HMGET s r0 r8", "[1, 1]");
    assert_eq!(client.int("HLEN s"), 21);
    client.run_many(ask(20));
    assert_eq!(encodings(&mut client), WIDE);
    // Those that were empty begin anew.
    client.run_many((0..21).map(|n| format!("FAIRLOCK.CANCEL k w{n}")));
    client.run("FAIRLOCK.BREAK s");
    client.run_many((0..8).flat_map(ask));
    assert_eq!(encodings(&mut client), COMPACT);
    client.run_many(ask(8));
    assert_eq!(encodings(&mut client), WIDE);
}
