//! Pipelines, transactions, scripts and functions: the commands inside of something larger.

use fairlock_testing::{Client, Server, wait_until};

/// What a caller that cannot block asks, and how the replies begin. `{who}` says what it is: in a script, or by another
/// module.
const STEPS: &str = "
    ACQUIRE k a SESSION -> (error) ERR SESSION binds the lock to a connection and cannot be used {who}
    ACQUIRE k a ENQUEUE SESSION -> (error) ERR SESSION binds the lock to a connection and cannot be used {who}
    ACQUIRE k * -> (error) ERR owner '*' is the identity of a connection and cannot be used {who}
    QUEUE k -> []
    ACQUIRE k a LEASE 60000 -> a token
    ACQUIRE k a -> a token
    RELEASE k a -> 1
    RENEW k a LEASE 70000 -> 70000
    ACQUIRE k b -> (nil)
    ACQUIRE k b WAIT 3600000 -> (nil)
    QUEUE k -> []
    ACQUIRE k b ENQUEUE -> [1,
    ACQUIRE k c ENQUEUE -> [2,
    QUEUE k -> [[b, polling,
    RELEASE k a -> 0
    ACQUIRE k b ENQUEUE -> a token
    RELEASE k b -> 0
    ACQUIRE k c ENQUEUE -> a token
    RELEASE k c -> 0
    RELEASE k c -> (error) NOTHELD";

/// A caller that cannot block uses a lock as clients do.
pub fn uses_a_lock(who: &str, mut call: impl FnMut(&str) -> String) {
    for step in STEPS.trim().lines() {
        let (words, expected) = step.trim_start().split_once(" -> ").expect("two parts");
        let reply = call(&format!("FAIRLOCK.{words}"));
        let is_right = match expected {
            "a token" => reply.parse().is_ok_and(|token: i64| token > 1),
            start => reply.starts_with(&start.replace("{who}", who)),
        };
        assert!(is_right, "{who}, {words}: {reply}");
    }
}

/// Calls one command of this module with its arguments.
const CALL: &str = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";

/// The same as a function.
const LIBRARY: &str = "#!lua name=locks
    redis.register_function('call', function(keys, args)
        return redis.call(args[1], keys[1], unpack(args, 2))
    end)";

/// Sends `how script-or-function 1 k words...`.
fn call(client: &mut Client, how: &str, what: &str, words: &str) -> String {
    let mut arguments = vec![how.as_bytes(), what.as_bytes(), b"1", b"k"];
    arguments.extend(words.split(' ').map(str::as_bytes));
    client.run_words(&arguments)
}

#[test]
fn commands_behind_an_acquire_that_blocks_wait_with_it_and_run_in_order() {
    let (server, mut client) = Server::connected();
    let token = client.int("FAIRLOCK.ACQUIRE k a");
    let mut wire = server.wire(
        "APPEND log 1\nFAIRLOCK.ACQUIRE k b\nAPPEND log 2\nFAIRLOCK.ACQUIRE k b\n\
         FAIRLOCK.ACQUIRE j b\nFAIRLOCK.RELEASE k b ALL\nAPPEND log 3",
    );
    assert_eq!(wire.line(), ":1");
    wait_until("b waits", || server.blocked() == 1);
    client.assert_reply("GET log", "1");
    client.assert_reply("EXISTS j", "0");
    client.int("FAIRLOCK.RELEASE k a");
    let next = wire.token();
    assert!(next > token);
    assert_eq!(wire.line(), ":2");
    assert_eq!(wire.token(), next);
    let other = wire.line();
    assert!(other.len() > 10, "{other}");
    assert_eq!(wire.line(), ":0");
    assert_eq!(wire.line(), ":3");
    client.assert_reply("GET log", "123");
    client.assert_reply("EXISTS k", "0");
}

#[test]
fn scripts_and_functions_use_locks_as_clients_that_cannot_block() {
    let (_server, mut client) = Server::connected();
    let loaded = client.raw(&[b"FUNCTION", b"LOAD", LIBRARY.as_bytes()]);
    loaded.expect("loaded");
    for (how, what) in [("EVAL", CALL), ("FCALL", "call")] {
        uses_a_lock("in a script", |words| {
            call(&mut client, how, what, &words.replacen(" k", "", 1))
        });
    }
    client.assert_reply("DBSIZE", "0");
}

#[test]
fn in_a_transaction_no_request_waits() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("MULTI");
    client.run("FAIRLOCK.ACQUIRE k b WAIT 3600000");
    call(&mut client, "EVAL", CALL, "FAIRLOCK.ACQUIRE b");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    client.assert_start("EXEC", "[(nil), (nil), [1, ");
}

#[test]
fn a_session_in_a_transaction_is_bound_to_the_connection() {
    let server = Server::start();
    let (mut client, mut other) = (server.connect(), server.connect());
    let replies = client.at_once(&["FAIRLOCK.ACQUIRE k a SESSION LEASE 600000"]);
    assert!(!replies.contains("nil"), "{replies}");
    other.assert_has("FAIRLOCK.INFO k", "session, 1");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    drop(client);
    assert!(waiter.int() > 0);
    assert_eq!(other.holders("k"), "[b, 1]");
}

#[test]
fn freed_inside_the_lock_goes_to_the_waiter_once_and_an_acquire_behind_that_does_not_overtake() {
    const BOTH: &str = "return {redis.call('FAIRLOCK.RELEASE', KEYS[1], 'a'),
        redis.call('FAIRLOCK.ACQUIRE', KEYS[1], 'c')}";
    let (server, mut client) = Server::connected();
    for how in ["RELEASE", "DEL", "script"] {
        let token = client.int("FAIRLOCK.ACQUIRE k a");
        let mut waiter = server.wire("FAIRLOCK.ACQUIRE k b\nPING");
        wait_until("b waits", || server.blocked() == 1);
        let replies = match how {
            "RELEASE" => client.at_once(&["FAIRLOCK.RELEASE k a", "FAIRLOCK.ACQUIRE k c"]),
            "DEL" => client.at_once(&["DEL k", "FAIRLOCK.ACQUIRE k c"]),
            _ => call(&mut client, "EVAL", BOTH, ""),
        };
        let freed = i32::from(how == "DEL");
        assert_eq!(replies, format!("[{freed}, (nil)]"), "{how}");
        assert!(waiter.token() > token);
        assert_eq!(waiter.line(), "+PONG");
        assert_eq!(client.holders("k"), "[b, 1]");
        client.assert_reply("FAIRLOCK.QUEUE k", "[]");
        client.assert_reply("FAIRLOCK.RELEASE k b", "0");
    }
}

/// Keys that a client watches (`Q` is the queue), a command that another one sends meanwhile, and what the first finds.
const WATCHED: &str = "
    k -> ACQUIRE k a -> changed
    k -> RENEW k a -> changed
    k Q -> ACQUIRE k b NOWAIT -> same
    k Q -> RELEASE k b -> same
    k Q -> RENEW k b -> same
    k Q -> CANCEL k b -> same
    k -> ACQUIRE k b ENQUEUE -> same
    Q -> ACQUIRE k c ENQUEUE -> changed
    Q -> CANCEL k c -> changed
    k -> CANCEL k b -> same
    k -> RELEASE k a -> changed";

#[test]
fn a_watch_on_the_lock_notices_a_change_of_holder_and_not_a_waiter() {
    let server = Server::start();
    let (mut client, mut watcher) = (server.connect(), server.connect());
    for case in WATCHED.trim().lines() {
        let parts: Vec<_> = case.trim().split(" -> ").collect();
        watcher.run(&format!(
            "WATCH {}",
            parts[0].replace('Q', "redisson_lock_queue:{k}")
        ));
        client.run(&format!("FAIRLOCK.{}", parts[1]));
        let is_same = watcher.at_once(&["PING"]) == "[PONG]";
        assert_eq!(is_same, parts[2] == "same", "{case}");
    }
    // Handed over by the server itself, when a lease ends: after the watch began, as both come in one write.
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    watcher.run_many(["PEXPIRE k 300", "WATCH k"]);
    waiter.int();
    assert_eq!(watcher.at_once(&["PING"]), "(nil)");
}
