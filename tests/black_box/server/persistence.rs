//! Restarts: the append-only file, snapshots, and servers without the module.

use fairlock_testing::{Server, follow, wait_until};

use super::replication::{dump, same_keys};

use crate::scene::{AOF, appended};

/// A lock on which everything has happened once.
fn busy_lock(server: &Server) {
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    for n in 0..6 {
        client.run(&format!(
            "FAIRLOCK.ACQUIRE k w{n} ENQUEUE LEASE 600000 PATIENCE 600000"
        ));
    }
    client.run("FAIRLOCK.CANCEL k w0");
    client.run("FAIRLOCK.CANCEL k w3");
    // By a script, and below in a transaction.
    client.run("EVAL redis.call('FAIRLOCK.CANCEL','k','w5') 1 k");
    client.int("FAIRLOCK.RELEASE k a");
    client.int("FAIRLOCK.RELEASE k a");
    client.int("FAIRLOCK.ACQUIRE k w1 LEASE 600000");
    client.at_once(&["FAIRLOCK.RENEW k w1 LEASE 500000"]);
    client.run("FAIRLOCK.ACQUIRE other a LEASE 600000");
    client.run("FAIRLOCK.BREAK other");
}

/// The same of a lock that is held together.
fn busy_shared_lock(server: &Server) {
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
fn a_killed_server_comes_back_with_the_same_lock_and_its_replica_has_it_with_the_module_or_without()
{
    let cases = [(AOF, false), (AOF, true), (&[], true)].into_iter();
    let cases = cases.flat_map(|case| [busy_lock, busy_shared_lock].map(|make| (case, make)));
    for ((options, without_module), make) in cases {
        let server = Server::with(options);
        let replica = if without_module {
            Server::without_module(&[])
        } else {
            Server::start()
        };
        follow(&replica, &server);
        make(&server);
        same_keys(&server, &replica);
        let mut client = server.connect();
        let before = dump(&mut client);
        if options.is_empty() {
            // Perhaps not while the replica is still given its copy.
            client.wait_for("SAVE", "OK");
        }
        drop(client);
        let server = if without_module {
            server.kill_and_restart_without_module(options)
        } else {
            server.kill_and_restart()
        };
        let after = dump(&mut server.connect());
        assert_eq!(after, before, "{options:?}, without: {without_module}");
    }
}

#[test]
fn the_queue_of_a_free_lock_belongs_to_the_name_of_two_whose_owners_come_back() {
    // By Redisson's rule for names the locks `k` and `{k}` have one queue.
    for (used, other) in [("{k}", "k"), ("k", "{k}")] {
        let (server, mut client) = Server::connected_with(AOF);
        let ask = |owner: &str| format!("FAIRLOCK.ACQUIRE {used} {owner} ENQUEUE");
        let token = client.int(&format!("FAIRLOCK.ACQUIRE {used} a"));
        client.run(&ask("b"));
        client.run(&ask("c"));
        client.int(&format!("FAIRLOCK.RELEASE {used} a"));
        drop(client);
        let server = server.kill_and_restart();
        let mut client = server.connect();
        assert!(client.run(&ask("c")).starts_with("[2, "), "{used}");
        client.assert_has(&format!("FAIRLOCK.ACQUIRE {other} x ENQUEUE"), "one queue");
        assert!(client.int(&ask("b")) > token);
        client.int(&format!("FAIRLOCK.RELEASE {used} b"));
        assert!(client.int(&ask("c")) > token);
    }
}

#[test]
fn the_append_only_file_holds_plain_commands_one_transaction_a_step() {
    let (server, mut client) =
        Server::connected_with(&["--appendonly", "yes", "--aof-use-rdb-preamble", "no"]);
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    client.int("FAIRLOCK.RELEASE k a");
    waiter.int();
    // A wake-up leaves nothing there.
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
    client.int("FAIRLOCK.RELEASE k b");
    client.int("FAIRLOCK.CANCEL k p");
    let read = || {
        let text = appended(&server);
        let words = text.lines().filter(|line| !line.starts_with(['*', '$']));
        let names = [
            "MULTI",
            "EXEC",
            "HSET",
            "PEXPIREAT",
            "SET",
            "ZADD",
            "RPUSH",
            "DEL",
            "LPOP",
            "ZREM",
            "PUBLISH",
        ];
        let words: Vec<_> = words
            .filter(|word| names.contains(word) || word.contains("FAIRLOCK"))
            .collect();
        words.join(" ")
    };
    let expected = "MULTI HSET PEXPIREAT EXEC \
                    MULTI ZADD RPUSH EXEC \
                    MULTI DEL HSET PEXPIREAT LPOP ZREM EXEC \
                    MULTI ZADD RPUSH EXEC \
                    DEL \
                    MULTI LPOP ZREM EXEC";
    wait_until("it is written", || read().ends_with("LPOP ZREM EXEC"));
    assert_eq!(read(), expected);
}

/// What the log says of the user `default` when it has these rules.
fn told_of_default_user(rules: &[&str], append_only: &str) -> bool {
    let mut options = vec!["--appendonly", append_only, "--user", "default"];
    options.extend(rules);
    let server = Server::with(&options);
    // The server has begun when it answers.
    assert_eq!(server.connect().run("PING"), "PONG");
    server.log().contains("the user default may not run ")
}

#[test]
fn a_default_user_for_whom_the_file_would_be_skipped_is_told_of() {
    let all = ["on", "nopass", "~*", "&*", "+@all"];
    let without_hset = [&all[..], &["-hset"]].concat();
    let some_keys = ["on", "nopass", "~orders:*", "&*", "+@all"];
    assert!(told_of_default_user(&without_hset, "yes"));
    assert!(told_of_default_user(&some_keys, "yes"));
    assert!(!told_of_default_user(&without_hset, "no"));
    assert!(!told_of_default_user(&all, "yes"));
}
