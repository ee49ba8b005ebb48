//! Every way in which a lock becomes free without a command of this module: the head's turn starts at once, and only
//! the head's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testing::{Blocked, Client, Listener, Server, wait_until};

use crate::scene::{OPTIONS, Scene};

/// Commands, a case a line, after the last of which `k`, held by `a`, is free. After each of those before, it is held,
/// by whomever.
const DELETED: &str = "
    DEL k
    UNLINK k
    PEXPIREAT k 1
    MULTI; DEL k; EXEC
    EVAL redis.call('DEL',KEYS[1]) 1 k
    EVAL redis.call('DEL','k')redis.call('HSET','k','x',1) 0; DEL k
    MULTI; DEL k; HSET k x 1; EXEC; DEL k";

const REPLACED: &str = "
    SET k x; DEL k
    SET k x; GETDEL k
    SET k x; GETEX k PXAT 1
    HSET other x 1; RENAME other k; DEL k
    RPUSH other x; RENAME other k; LPOP k
    HSET other x 1; COPY other k REPLACE; UNLINK k
    SORT other STORE k
    SINTERSTORE k other";

const AWAY: &str = "
    RENAME k gone
    MOVE k 1
    FLUSHDB
    FLUSHDB ASYNC
    SELECT 3; FLUSHALL";

/// After the last of these the server itself is to find out that the lock is free. One behind the other in a
/// transaction, a key does not expire in between.
const EXPIRING: &str = "
    PEXPIRE k 1
    SET k x PX 20
    SET other x; MULTI; PEXPIRE other 20; RENAME other k; EXEC";

/// The same where the server deletes no expired key by itself.
const UNNOTICED: &str = "
    DEBUG SET-ACTIVE-EXPIRE 0; PEXPIRE k 1
    DEBUG SET-ACTIVE-EXPIRE 0; PERSIST k; PEXPIRE k 900000; PEXPIRE k 50";

/// The holder's field is taken out of the hash, or expires; the token stays there.
const TAKEN_OUT: &str = "
    HDEL k a
    HSET k x 1; HDEL k a; HDEL k x
    HPEXPIRE k 0 FIELDS 1 a
    PERSIST k; HPEXPIRE k 50 FIELDS 1 a";

/// Takes `k` away from `a`, with the head of the queue blocked and with it polling. `go` leaves
/// the lock free.
fn blocked_and_polling(name: &str, options: &[&str], go: impl Fn(&mut Scene)) {
    for polling in [false, true] {
        println!("{name}, polling: {polling}");
        let mut scene = Scene::new(options, polling);
        let since = scene.client.now();
        go(&mut scene);
        scene.the_head_is_served(since);
    }
}

/// As [`blocked_and_polling`], where `go` leaves it to the server to free the lock.
fn blocked_and_polling_soon(name: &str, options: &[&str], go: impl Fn(&mut Scene)) {
    blocked_and_polling(name, options, |scene| {
        go(scene);
        scene.the_head_has_its_turn();
    });
}

/// Runs the steps of a case; where it is held in between, no waiter is served.
fn take_away(scene: &mut Scene, case: &str) {
    for (index, step) in case.split("; ").enumerate() {
        if index > 0 {
            scene.no_waiter_is_served();
        }
        scene.step(step);
    }
}

fn run_cases(cases: &str) {
    for case in cases.trim().lines().map(str::trim) {
        blocked_and_polling(case, &[], |scene| take_away(scene, case));
    }
}

fn run_cases_soon(cases: &str, options: &[&str]) {
    for case in cases.trim().lines().map(str::trim) {
        blocked_and_polling_soon(case, options, |scene| take_away(scene, case));
    }
}

#[test]
fn a_lock_that_is_deleted_goes_to_the_head() {
    run_cases(DELETED);
}

#[test]
fn a_lock_that_is_replaced_and_then_removed_goes_to_the_head() {
    run_cases(REPLACED);
}

#[test]
fn a_lock_that_is_taken_elsewhere_goes_to_the_head() {
    run_cases(AWAY);
}

#[test]
fn a_lock_that_is_restored_over_and_then_removed_goes_to_the_head() {
    blocked_and_polling("RESTORE, DEL", &[], |scene| {
        restore(&mut scene.other, b"0");
        assert_eq!(scene.client.holders("k"), "[x, 1]");
        scene.no_waiter_is_served();
        scene.step("DEL k");
    });
    // What has expired already is deleted rather than restored.
    blocked_and_polling("RESTORE of an expired lock", &[], |scene| {
        restore(&mut scene.other, b"1");
    });
    blocked_and_polling_soon("RESTORE with a short lease", &[], |scene| {
        let soon = scene.client.now() + 50;
        restore(&mut scene.other, soon.to_string().as_bytes());
    });
}

/// Restores a lock that `x` holds over `k`, expiring at an instant (0: never).
#[track_caller]
fn restore(client: &mut Client, expiry: &[u8]) {
    client.run("HSET other x 1");
    let Ok(redis::Value::BulkString(dump)) = client.raw(&[b"DUMP", b"other"]) else {
        panic!("no dump");
    };
    let restored = client.raw(&[b"RESTORE", b"k", expiry, &dump, b"REPLACE", b"ABSTTL"]);
    restored.expect("restored");
}

#[test]
fn a_lock_that_is_migrated_to_another_server_goes_to_the_head() {
    let target = Server::start();
    blocked_and_polling("MIGRATE", &[], |scene| {
        target.connect().run("DEL k");
        scene.step(&format!("MIGRATE 127.0.0.1 {} k 0 60000", target.port));
        assert_eq!(target.connect().holders("k"), "[a, 1]");
    });
}

#[test]
fn a_lock_that_is_evicted_goes_to_the_head_and_no_blocked_waiter_loses_its_place() {
    // All keys are evicted, the queue among them, or the lock alone.
    for (policy, polling) in [
        ("allkeys-lru", false),
        ("volatile-ttl", false),
        ("volatile-ttl", true),
    ] {
        let mut scene = Scene::new(&["--maxmemory-policy", policy], polling);
        let since = scene.client.now();
        // Every command evicts first. Sent together, the two are one iteration of the event loop: a lock that is
        // granted at its end is not evicted again.
        let limits = ["CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"];
        scene.other.run_many(limits);
        assert_ne!(scene.server.info("stats", "evicted_keys"), "0");
        scene.the_head_is_served(since);
    }
}

#[test]
fn a_lock_that_expires_goes_to_the_head() {
    run_cases_soon(EXPIRING, &[]);
}

/// The server deletes an expired key only when it is accessed.
const LAZY: &[&str] = &["--hz", "1"];

#[test]
fn a_lock_that_expires_unnoticed_by_the_server_goes_to_the_head() {
    run_cases_soon(UNNOTICED, LAZY);
}

/// Within a second, as hashes raise no events that are listened to.
#[test]
fn a_lock_whose_owner_is_taken_out_goes_to_the_head() {
    let (_server, mut client) = Server::connected();
    let mut is_known = |case: &&str| {
        let mut names = case
            .split("; ")
            .filter_map(|step| step.split_whitespace().next());
        names.all(|name| client.run(&format!("COMMAND INFO {name}")) != "[(nil)]")
    };
    let known: Vec<_> = TAKEN_OUT.trim().lines().filter(&mut is_known).collect();
    run_cases_soon(&known.join("\n"), &[]);
}

/// Whether the next waiter is served soon after a command, on a server that wakes up by itself only once a second. It
/// would also be served by that, but late. A busy machine may be late now and then.
fn is_served_soon(command: &str) -> bool {
    (0..20).any(|_| {
        let (server, mut client) = Server::connected_with(&[OPTIONS, LAZY].concat());
        client.run("DEBUG SET-ACTIVE-EXPIRE 0");
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        let head = server.block("FAIRLOCK.ACQUIRE k b LEASE 50");
        let next = server.block("FAIRLOCK.ACQUIRE k c");
        let start = Instant::now();
        client.run(command);
        wait_until("all are served", || head.is_done() && next.is_done());
        start.elapsed() < Duration::from_millis(500)
    })
}

#[test]
fn an_idle_server_knows_when_a_lease_ends_whoever_has_set_it() {
    // Others; a hand-off; others, on a key of another type.
    for command in ["PEXPIRE k 50", "DEL k", "SET k x PX 50"] {
        assert!(is_served_soon(command), "{command}");
    }
}

#[test]
fn a_lock_whose_expiry_an_access_notices_goes_to_the_head() {
    // A key of another type has no due time, as far as the lock is concerned.
    for expire in ["PEXPIRE k 50", "SET k x PX 50"] {
        blocked_and_polling(expire, LAZY, |scene| {
            scene.step("DEBUG SET-ACTIVE-EXPIRE 0");
            // In one iteration of the event loop the key expires and is asked for.
            let mut socket =
                TcpStream::connect(("127.0.0.1", scene.server.port)).expect("connected");
            let commands = format!("{expire}\r\nDEBUG SLEEP 0.1\r\nEXISTS k\r\nQUIT\r\n");
            socket.write_all(commands.as_bytes()).expect("sent");
            let mut replies = String::new();
            socket.read_to_string(&mut replies).expect("replies");
            let (set, replies) = replies.split_once("\r\n").expect("replies");
            assert!([":1", "+OK"].contains(&set), "{set}");
            assert_eq!(replies, "+OK\r\n:0\r\n+OK\r\n");
        });
    }
}

#[test]
fn a_lock_whose_lease_others_prolong_stays_held() {
    let is_prolonged = |longer| {
        blocked_and_polling(longer, &[], |scene| {
            // Not over before it is prolonged, however busy the machine.
            scene.step("PEXPIRE k 3000");
            let end = scene.client.int("PEXPIRETIME k");
            scene.step(longer);
            wait_until("the old lease is over", || scene.client.now() > end + 20);
            scene.no_waiter_is_served();
            scene.step("DEL k");
        });
    };
    thread::scope(|scope| {
        for longer in ["PERSIST k", "PEXPIRE k 600000"] {
            scope.spawn(move || is_prolonged(longer));
        }
    });
}

#[test]
fn a_lock_goes_to_the_head_in_its_own_database_only() {
    let in_three = ["DEL k", "PEXPIRE k 1", "RENAME k gone", "FLUSHDB"];
    for command in in_three {
        let mut scene = Scene::new(&[], false);
        let mut there = scene.server.connect();
        there.run("SELECT 3");
        there.int("FAIRLOCK.ACQUIRE k x LEASE 600000");
        there.run("FAIRLOCK.ACQUIRE k y ENQUEUE PATIENCE 600000");
        let channel = "redisson_lock__channel:{k}:y";
        let listener = Listener::new(scene.server.port, channel);
        there.run(command);
        assert_eq!(listener.message(), "0");
        assert!(there.int("FAIRLOCK.ACQUIRE k y ENQUEUE") > 0);
        scene.no_waiter_is_served();
    }
}

#[test]
fn a_flush_of_all_databases_frees_the_locks_of_each() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    for client in [&mut holder, &mut waiter] {
        client.run("SELECT 3");
    }
    holder.int("FAIRLOCK.ACQUIRE k a");
    let waiter = Blocked::send_on(waiter, "FAIRLOCK.ACQUIRE k b");
    wait_until("it waits", || server.blocked() == 1);
    server.connect().run("FLUSHALL");
    assert!(waiter.int() > 0);
}

#[test]
fn a_lock_that_is_named_as_the_keys_of_another_is_freed_like_any_other() {
    let prefixes = [
        "fairlock_token:",
        "redisson_lock_queue:",
        "redisson_lock_timeout:",
        "redisson_lock_shared:",
    ];
    for prefix in prefixes {
        let (server, mut client) = Server::connected();
        client.int(&format!("FAIRLOCK.ACQUIRE {prefix}job a LEASE 600000"));
        let next = server.block(&format!("FAIRLOCK.ACQUIRE {prefix}job b"));
        client.run(&format!("DEL {prefix}job"));
        assert!(next.int() > 0, "{prefix}");
    }
}
