//! What operators do to a server: loading, shutting down, saving, running out of
//! memory.

use fairlock_testing::{Blocked, Client, Listener, Server, Wire, wait_until};

use crate::scene::{AOF, QUEUE};

/// Waiters of a lock that is held, each blocked.
fn waiters(server: &Server, names: &[&str]) -> Vec<Blocked> {
    names
        .iter()
        .map(|name| server.block(&format!("FAIRLOCK.ACQUIRE k {name} LEASE 600000")))
        .collect()
}

#[test]
fn a_queue_that_was_there_before_the_module_is_served_by_it() {
    let server = Server::without_module(&["--enable-module-command", "yes"]);
    let path = Server::start().module_path();
    let mut client = server.connect();
    // As Redisson's scripts leave it.
    client.run("HSET k a 1");
    client.run("PEXPIRE k 600000");
    client.run("RPUSH redisson_lock_queue:{k} dead p");
    client.run("ZADD redisson_lock_timeout:{k} 99999999999999 dead 99999999999999 p");
    // Long enough for p to ask again in time on a busy machine.
    client.assert_reply(&format!("MODULE LOAD {path} turn 3000"), "OK");
    client.assert_reply("FAIRLOCK.ACQUIRE k c NOWAIT", "(nil)");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    assert_eq!(client.run(QUEUE), "[dead, p, b]");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    // The first does not come; then it is the turn of p, which does.
    let mut reply = String::new();
    wait_until("p has the lock", || {
        reply = client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
        !reply.starts_with('[')
    });
    assert!(reply.parse::<i64>().expect("a token") > 0);
    assert!(!waiter.is_done());
    client.assert_reply("FAIRLOCK.RELEASE k p", "0");
    assert!(waiter.int() > 0);
}

#[test]
fn queues_that_were_there_before_the_module_are_found_by_it() {
    let server = Server::without_module(&["--enable-module-command", "yes"]);
    let path = Server::start().module_path();
    let mut client = server.connect();
    // One queue among many other keys, in another database.
    client.run("SELECT 3");
    for n in 0..5_000 {
        client.run(&format!("SET other{n} x"));
    }
    client.run("HSET {k}x a 1");
    client.run("PEXPIRE {k}x 600000");
    client.run("RPUSH redisson_lock_queue:{k}x dead p");
    client.run("ZADD redisson_lock_timeout:{k}x 99999999999999 dead 99999999999999 p");
    let wake_ups = Listener::new(server.port, "redisson_lock__channel:{k}x:p");
    client.assert_reply(&format!("MODULE LOAD {path} turn 50"), "OK");
    // No command of this module has touched the lock; it knows the lock all the same.
    wait_until("it is known", || {
        server.info("fairlock", "fairlock_locks_with_waiters_or_session") == "1"
    });
    client.run("DEL {k}x");
    assert_eq!(wake_ups.message(), "0");
    wait_until("both are dropped", || {
        client.run("LLEN redisson_lock_queue:{k}x") == "0"
    });
}

#[test]
fn debug_reload_changes_nothing_for_those_who_wait_and_hold() {
    let (server, mut client) = Server::connected_with(&["--enable-debug-command", "yes"]);
    let mut session = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    session.int("FAIRLOCK.ACQUIRE s a SESSION LEASE 600000");
    let mut queue = waiters(&server, &["b"]);
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
    queue.extend(waiters(&server, &["c"]));
    let of_session = server.block("FAIRLOCK.ACQUIRE s d");
    for _ in 0..3 {
        client.assert_reply("DEBUG RELOAD", "OK");
    }
    assert_eq!(client.run(QUEUE), "[b, p, c]");
    client.assert_reply("FAIRLOCK.ACQUIRE k e NOWAIT", "(nil)");
    assert!(client.run("FAIRLOCK.INFO s").contains("session, 1"));
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    assert!(queue.remove(0).int() > 0);
    client.assert_reply("FAIRLOCK.RELEASE k b", "0");
    assert!(client.int("FAIRLOCK.ACQUIRE k p ENQUEUE") > 0);
    client.assert_reply("FAIRLOCK.RELEASE k p", "0");
    assert!(queue.remove(0).int() > 0);
    drop(session);
    assert!(of_session.int() > 0);
}

#[test]
fn a_server_that_shuts_down_lets_everyone_go() {
    for how in ["NOSAVE", "SAVE", "TERM"] {
        let mut server = Server::start();
        let mut client = server.connect();
        let mut session = server.connect();
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        session.int("FAIRLOCK.ACQUIRE s a SESSION LEASE 600000");
        client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
        let queue = waiters(&server, &["b", "c"]);
        if how == "TERM" {
            server.signal("TERM");
        } else {
            client.run(&format!("SHUTDOWN {how}"));
        }
        assert_eq!(server.exit_code(), Some(0), "{how}");
        for waiter in queue {
            let reply = waiter.reply();
            assert!(reply.starts_with("(error) not a reply"), "{how}: {reply}");
        }
        assert!(!server.log().contains("CRASHED"), "{}", server.log());
    }
}

#[test]
fn a_loaded_queue_is_served_without_a_request() {
    for append_only in ["no", "yes"] {
        let options = [
            "--fairlock.turn",
            "50",
            "--appendonly",
            append_only,
            "--appendfsync",
            "always",
        ];
        let (server, mut client) = Server::connected_with(&options);
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        client.run("FAIRLOCK.ACQUIRE k p ENQUEUE PATIENCE 600000");
        // One that is named after its connection is gone with it.
        client.run("FAIRLOCK.ACQUIRE k * ENQUEUE PATIENCE 600000");
        client.run("FAIRLOCK.RENEW k a LEASE 1500");
        if append_only == "no" {
            client.assert_reply("SAVE", "OK");
        }
        drop(client);
        let server = server.kill_and_restart();
        let mut client = server.connect();
        // The lease ends, and each of the two is woken and dropped when its turn is over.
        wait_until("both have had their turns", || {
            client.run("EXISTS redisson_lock_queue:{k}") == "0"
        });
        assert!(client.int("FAIRLOCK.ACQUIRE k b") > 0);
    }
}

/// Hands a lock from one to the next while a child process saves, and more join and leave.
fn busy_while_saving(server: &Server, client: &mut Client, command: &str, running: &str) {
    client.int("FAIRLOCK.ACQUIRE k w LEASE 600000");
    let queue = waiters(server, &["w0", "w1", "w2", "w3", "w4"]);
    // A fifth of a second for each key keeps the child alive long enough.
    client.run("CONFIG SET rdb-key-save-delay 200000");
    client.assert_start(command, "Background ");
    wait_until("the child saves", || {
        server.info("persistence", running) == "1"
    });
    let mut holder = "w".to_owned();
    for (n, waiter) in queue.into_iter().enumerate().take(4) {
        client.assert_reply(&format!("FAIRLOCK.RELEASE k {holder}"), "0");
        assert!(waiter.int() > 0);
        holder = format!("w{n}");
    }
    let last = server.block("FAIRLOCK.ACQUIRE k last");
    let leaves = server.block("FAIRLOCK.ACQUIRE k leaves");
    client.run("FAIRLOCK.ACQUIRE k polls ENQUEUE PATIENCE 600000");
    leaves.disconnect();
    assert_eq!(
        server.info("persistence", running),
        "1",
        "all that while it saved"
    );
    client.run("CONFIG SET rdb-key-save-delay 0");
    wait_until("it has saved", || {
        server.info("persistence", running) == "0"
    });
    drop(last);
}

#[test]
fn a_snapshot_made_under_load_is_that_of_its_instant() {
    let (server, mut client) = Server::connected();
    for n in 0..30 {
        client.run(&format!("SET filler{n} x"));
    }
    busy_while_saving(&server, &mut client, "BGSAVE", "rdb_bgsave_in_progress");
    assert_eq!(server.info("persistence", "rdb_last_bgsave_status"), "ok");
    assert_eq!(client.holders("k"), "[w3, 1]");
    drop(client);
    let server = server.kill_and_restart();
    let mut client = server.connect();
    assert_eq!(client.holders("k"), "[w, 1]");
    assert_eq!(client.run(QUEUE), "[w0, w1, w2, w3, w4]");
    client.assert_reply("ZCARD redisson_lock_timeout:{k}", "5");
}

#[test]
fn an_append_only_file_rewritten_under_load_has_everything() {
    let (server, mut client) = Server::connected_with(AOF);
    for n in 0..30 {
        client.run(&format!("SET filler{n} x"));
    }
    busy_while_saving(
        &server,
        &mut client,
        "BGREWRITEAOF",
        "aof_rewrite_in_progress",
    );
    assert_eq!(
        server.info("persistence", "aof_last_bgrewrite_status"),
        "ok"
    );
    let kept = |client: &mut Client| {
        [
            "HGETALL k",
            "PEXPIRETIME k",
            "LRANGE redisson_lock_queue:{k} 0 -1",
            "ZRANGE redisson_lock_timeout:{k} 0 -1 WITHSCORES",
        ]
        .map(|command| client.run(command))
    };
    let before = kept(&mut client);
    assert!(before[0].starts_with("[w3, 1, , "), "{}", before[0]);
    assert_eq!(before[2], "[w4, last, polls]");
    drop(client);
    let server = server.kill_and_restart();
    assert_eq!(kept(&mut server.connect()), before);
}

#[test]
fn a_full_server_refuses_to_lock_and_does_everything_that_frees() {
    let (server, mut client) = Server::connected_with(&["--maxmemory-policy", "noeviction"]);
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let mut queue = waiters(&server, &["b", "c", "d", "e"]);
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
    client.run("CONFIG SET maxmemory 1");
    for option in ["", " NOWAIT", " ENQUEUE", " WAIT 5"] {
        // The holder, a waiter and a newcomer alike.
        for owner in ["a", "p", "z"] {
            client.assert_error(&format!("FAIRLOCK.ACQUIRE k {owner}{option}"), "OOM");
        }
    }
    assert_eq!(client.run(QUEUE), "[b, c, d, e, p]");
    client.assert_reply("FAIRLOCK.RENEW k a LEASE 500000", "500000");
    client.assert_reply("FAIRLOCK.CANCEL k p", "1");
    client.assert_reply("FAIRLOCK.CANCEL k d", "1");
    assert_eq!(queue.remove(2).reply(), "(nil)");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    let second = queue.remove(0).int();
    assert!(second > token);
    client.assert_reply("FAIRLOCK.BREAK k", "1");
    let third = queue.remove(0).int();
    assert!(third > second);
    client.run("PEXPIRE k 1");
    assert!(queue.remove(0).int() > third);
    client.assert_reply("FAIRLOCK.QUEUE k", "[]");
    client.assert_start("FAIRLOCK.INFO k", "[owner, e, holds, 1, ");
}

/// Has the server evict, once, all keys that its policy allows.
fn evict(server: &Server) {
    let before = server.info("stats", "evicted_keys");
    // Every command evicts first. Sent together, the two are one iteration of the event loop: a lock that is granted at
    // its end is not evicted again.
    let mut wire = Wire::new(server.port);
    wire.send("CONFIG SET maxmemory 1\nCONFIG SET maxmemory 0");
    assert_eq!(wire.line(), "+OK");
    assert_eq!(wire.line(), "+OK");
    assert_ne!(server.info("stats", "evicted_keys"), before);
}

#[test]
fn an_evicted_lock_goes_to_its_head_and_all_places_are_kept() {
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl"] {
        let (server, mut client) = Server::connected_with(&["--maxmemory-policy", policy]);
        let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        let mut queue = waiters(&server, &["b", "c", "d"]);
        evict(&server);
        assert!(queue.remove(0).int() > token, "{policy}");
        assert_eq!(client.holders("k"), "[b, 1]");
        assert_eq!(client.run(QUEUE), "[c, d]");
        client.assert_reply("ZCARD redisson_lock_timeout:{k}", "2");
        for (holder, waiter) in ["b", "c"].iter().zip(queue) {
            client.assert_reply(&format!("FAIRLOCK.RELEASE k {holder}"), "0");
            assert!(waiter.int() > token, "{policy}");
        }
    }
}

#[test]
fn an_evicted_session_is_no_session_any_more() {
    let (server, mut client) = Server::connected_with(&["--maxmemory-policy", "allkeys-lru"]);
    let mut session = server.connect();
    session.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
    evict(&server);
    client.assert_reply("EXISTS k", "0");
    assert!(client.int("FAIRLOCK.ACQUIRE k b LEASE 600000") > 0);
    drop(session);
    wait_until("the connection has closed", || {
        server.info("fairlock", "fairlock_session_locks") == "0"
            && server.info("clients", "connected_clients") == "2"
    });
    assert_eq!(client.holders("k"), "[b, 1]");
}

#[test]
fn a_load_that_is_refused_leaves_no_memory_behind() {
    let path = Server::start().module_path();
    let server = Server::without_module(&["--enable-module-command", "yes"]);
    let mut client = server.connect();
    let mut rounds = |number: usize| {
        for _ in 0..number {
            client.assert_error(&format!("MODULE LOAD {path} lease never"), "ERR");
            client.assert_error(&format!("MODULE LOADEX {path} CONFIG fairlock.no 1"), "ERR");
        }
        let used = server.info("memory", "used_memory_dataset");
        used.parse::<i64>().expect("a number of bytes")
    };
    let before = rounds(5);
    let grown = rounds(50) - before;
    assert!(grown < 100_000, "{grown} bytes");
}
