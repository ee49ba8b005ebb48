//! Input that is wrong on purpose: a clear error, nothing changed, and the server lives.

use std::cell::RefCell;

use fairlock_testing::commands::{COMMANDS, calls_of_a_lock, on};
use fairlock_testing::{Server, wait_until};
use proptest::prelude::*;
use redis::Value;

use crate::scene::now;

const WRONGTYPE: &str = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn arguments_that_are_missing_or_too_many_are_refused() {
    let server = Server::start();
    let mut client = server.connect();
    // No argument, one too few, or one too many. LOCKS takes options only, and as many as it knows.
    let calls = COMMANDS.iter().flat_map(|command| {
        let fewest = on(&command.calls().next().expect("a call"), "k");
        let none = fewest.split_once(' ').map(|(name, _)| name.to_owned());
        let fewer = fewest.rsplit_once(' ').map(|(fewer, _)| fewer.to_owned());
        let more = (command.arity > 0).then(|| format!("{fewest} more"));
        [none, fewer, more]
    });
    let scripts =
        ["FAIRLOCK.EVAL script", "FAIRLOCK.EVALSHA sha1"].map(|call| Some(call.to_owned()));
    for words in calls.chain(scripts).flatten() {
        let error = client.run(&words);
        let command = words.split(' ').next().expect("a name").to_lowercase();
        let expected = format!("(error) ERR wrong number of arguments for '{command}' command");
        assert_eq!(error, expected, "{words}");
    }
    assert_eq!(client.run("DBSIZE"), "0");
}

#[test]
fn options_that_are_unknown_repeated_or_contradict_each_other_are_refused() {
    let server = Server::start();
    let mut client = server.connect();
    for (words, named) in [
        (
            "ACQUIRE k a SOON",
            "SHARED, LEASE, WAIT, NOWAIT, ENQUEUE, PATIENCE, SESSION or ONCE",
        ),
        ("ACQUIRE k a LEASE", "LEASE needs a value"),
        ("ACQUIRE k a LEASE 5 LEASE 6", "LEASE is given twice"),
        ("ACQUIRE k a ONCE ONCE", "ONCE is given twice"),
        ("BREAK k a", "unknown option, expected OWNER or FORCE"),
        ("BREAK k FORCE force", "FORCE is given twice"),
        (
            "ACQUIRE k a PATIENCE 5 patience 6",
            "PATIENCE is given twice",
        ),
        (
            "ACQUIRE k a WAIT 5 NOWAIT",
            "only one of WAIT, NOWAIT and ENQUEUE",
        ),
        (
            "ACQUIRE k a NOWAIT ENQUEUE",
            "only one of WAIT, NOWAIT and ENQUEUE",
        ),
        ("ACQUIRE k a WAIT 5 WAIT 5", "WAIT is given twice"),
        ("ACQUIRE k a NOWAIT NOWAIT", "NOWAIT is given twice"),
        ("ACQUIRE k a SHARED shared", "SHARED is given twice"),
        ("ACQUIRE k a SHARED two", "unknown option, expected SHARED"),
        ("BREAK k OWNER", "OWNER needs a value"),
        ("RELEASE k a ALL ALL", "ALL is given twice"),
        ("RELEASE k a TOKEN", "TOKEN needs a value"),
        ("RELEASE k a NOW", "TOKEN or ALL"),
        ("RENEW k a 5", "LEASE"),
        ("QUEUE k LIMIT 1", "LIMIT needs a value"),
        ("QUEUE k FIRST", "LIMIT"),
        ("LOCKS ALL all", "ALL is given twice"),
        ("LOCKS ALL AFTER", "AFTER needs a value"),
        ("LOCKS k", "ALL, COUNT or AFTER"),
        ("LOCKS COUNT", "COUNT needs a value"),
        ("LOCKS COUNT 1 COUNT 1", "COUNT is given twice"),
    ] {
        let error = client.run(&format!("FAIRLOCK.{words}"));
        assert!(
            error.starts_with("(error) ERR syntax error"),
            "{words}: {error}"
        );
        assert!(error.contains(named), "{words}: {error}");
    }
    assert_eq!(client.run("DBSIZE"), "0");
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    let server = Server::start();
    let mut client = server.connect();
    for value in [
        "0",
        "-1",
        "4503599627370497",
        "9223372036854775808",
        "1.5",
        "x",
        "1e3",
        "+5",
    ] {
        for option in ["LEASE", "WAIT", "PATIENCE"] {
            let error = client.run(&format!("FAIRLOCK.ACQUIRE k a {option} {value}"));
            let expected = format!(
                "(error) ERR {option} is not a whole number of milliseconds from 1 to 4503599627370496"
            );
            let hint = (option == "WAIT" && value == "0").then_some(": to try once say NOWAIT");
            assert_eq!(error, expected + hint.unwrap_or_default(), "{value}");
        }
        let error = client.run(&format!("FAIRLOCK.RENEW k a LEASE {value}"));
        assert!(error.starts_with("(error) ERR LEASE is not"), "{error}");
    }
    for value in ["0", "-1", "x", "9223372036854775808"] {
        let error = client.run(&format!("FAIRLOCK.RELEASE k a TOKEN {value}"));
        assert_eq!(
            error,
            "(error) ERR TOKEN is not a whole number from 1 to 9223372036854775807"
        );
    }
    for limit in ["-1 5", "x 5", "0 -2", "0 x"] {
        let error = client.run(&format!("FAIRLOCK.QUEUE k LIMIT {limit}"));
        assert!(error.starts_with("(error) ERR LIMIT "), "{error}");
    }
    assert_eq!(client.run("DBSIZE"), "0");
}

#[test]
fn the_longest_durations_are_taken() {
    let server = Server::start();
    let mut client = server.connect();
    let longest = 1i64 << 52;
    assert!(client.int(&format!("FAIRLOCK.ACQUIRE k a LEASE {longest}")) > 0);
    assert!(client.int("PTTL k") > longest - 10_000);
    let waiter = server.block(&format!(
        "FAIRLOCK.ACQUIRE k b WAIT {longest} PATIENCE {longest}"
    ));
    client.int("FAIRLOCK.RELEASE k a");
    assert!(waiter.int() > 0);
}

#[test]
fn owners_are_1_to_256_bytes_of_any_kind() {
    let server = Server::start();
    let mut client = server.connect();
    for length in [0, 257, 100_000] {
        let owner = vec![b'x'; length];
        let error = client
            .raw(&[b"FAIRLOCK.ACQUIRE", b"k", &owner])
            .expect_err("refused");
        assert_eq!(error, "ERR owner is not 1 to 256 bytes long");
    }
    let every: Vec<u8> = (0..=255).collect();
    let reply = client.raw(&[b"FAIRLOCK.ACQUIRE", b"k\x00\r\n\xff", &every]);
    assert!(matches!(reply, Ok(Value::Int(_))), "{reply:?}");
    let reply = client.raw(&[
        b"FAIRLOCK.ACQUIRE",
        b"k\x00\r\n\xff",
        &[0xfe; 256],
        b"ENQUEUE",
    ]);
    assert!(matches!(reply, Ok(Value::Array(_))), "{reply:?}");
    assert_eq!(
        client.raw(&[b"FAIRLOCK.RELEASE", b"k\x00\r\n\xff", &every]),
        Ok(Value::Int(0))
    );
    let reply = client.raw(&[
        b"FAIRLOCK.ACQUIRE",
        b"k\x00\r\n\xff",
        &[0xfe; 256],
        b"NOWAIT",
    ]);
    assert!(matches!(reply, Ok(Value::Int(_))), "{reply:?}");
    let reply = client.raw(&[b"FAIRLOCK.ACQUIRE", b"", b"a"]);
    assert!(
        matches!(reply, Ok(Value::Int(_))),
        "the empty key is a key: {reply:?}"
    );
}

#[test]
fn a_lock_queue_or_deadline_key_of_another_type_is_refused_and_left_alone() {
    let server = Server::start();
    let mut client = server.connect();
    // HOLDERS reads other keys (see there).
    let mut calls = calls_of_a_lock();
    calls.retain(|call| !call.starts_with("HOLDERS"));
    for key in ["k", "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}"] {
        client.run(&format!("SET {key} value"));
        for call in &calls {
            assert_eq!(client.run(&on(call, "k")), WRONGTYPE, "{key} {call}");
        }
        assert_eq!(client.run(&format!("GET {key}")), "value");
        assert_eq!(client.run("DBSIZE"), "1");
        client.run("FLUSHALL");
    }
    // The token's key is checked, but no lock depends on it.
    client.run("RPUSH fairlock_token:{k} value");
    assert!(client.int("FAIRLOCK.ACQUIRE k a") > 0);
}

#[test]
fn a_key_that_changes_its_type_stalls_no_waiter_for_ever() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    let patient = server.block("FAIRLOCK.ACQUIRE k c WAIT 150");
    // At once, so that the lease does not end before.
    let replies = client.at_once(&["PEXPIRE k 100", "SET k value"]);
    assert_eq!(replies, "[1, OK]");
    let over = now(&mut client) + 150;
    assert_eq!(patient.reply(), "(nil)");
    wait_until("the lease would be over", || now(&mut client) > over);
    assert!(!waiter.is_done());
    client.run("DEL k");
    assert!(waiter.int() > 0);
    assert_eq!(client.run("FAIRLOCK.QUEUE k"), "[]");
}

#[test]
fn an_entry_without_a_deadline_is_given_one() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("HSET k a 1");
    client.run("RPUSH redisson_lock_queue:{k} b");
    client.run("FAIRLOCK.ACQUIRE k c ENQUEUE");
    assert_eq!(client.run("LRANGE redisson_lock_queue:{k} 0 -1"), "[b, c]");
    let b = client.int("ZSCORE redisson_lock_timeout:{k} b");
    let c = client.int("ZSCORE redisson_lock_timeout:{k} c");
    // As if both had just joined: one patience after the other.
    assert!((c - b - 300_000).abs() < 5_000, "{b} {c}");
}

#[test]
fn a_deadline_without_an_entry_is_mended() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("HSET k a 1");
    client.run("ZADD redisson_lock_timeout:{k} 5 dead 99999999999999 alive");
    client.run("FAIRLOCK.ACQUIRE k c ENQUEUE");
    assert_eq!(
        client.run("LRANGE redisson_lock_queue:{k} 0 -1"),
        "[alive, c]"
    );
    assert_eq!(client.run("ZCARD redisson_lock_timeout:{k}"), "2");
}

#[test]
fn an_entry_twice_is_mended() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("HSET k a 1");
    client.run("RPUSH redisson_lock_queue:{k} b c b");
    client.run("ZADD redisson_lock_timeout:{k} 99999999999999 b 99999999999999 c");
    client.run("FAIRLOCK.ACQUIRE k d ENQUEUE");
    assert_eq!(
        client.run("LRANGE redisson_lock_queue:{k} 0 -1"),
        "[b, c, d]"
    );
}

#[test]
fn a_queue_that_others_empty_keeps_its_blocked_waiters() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let one = server.block("FAIRLOCK.ACQUIRE k b");
    let two = server.block("FAIRLOCK.ACQUIRE k c");
    client.run("DEL redisson_lock_queue:{k} redisson_lock_timeout:{k}");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(one.int() > 0);
    assert_eq!(client.run("LRANGE redisson_lock_queue:{k} 0 -1"), "[c]");
    client.int("FAIRLOCK.RELEASE k b");
    assert!(two.int() > 0);
    client.int("FAIRLOCK.RELEASE k c");
    assert_eq!(client.run("KEYS *"), "[]");
}

#[test]
fn full_memory_refuses_acquire_and_lets_release_and_cancel_work() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let waiter = server.block("FAIRLOCK.ACQUIRE k c");
    client.run("CONFIG SET maxmemory 1");
    let error = client.run("FAIRLOCK.ACQUIRE k d");
    assert!(error.starts_with("(error) OOM "), "{error}");
    assert_eq!(client.run("FAIRLOCK.CANCEL k b"), "1");
    assert_eq!(client.run("FAIRLOCK.RELEASE k a"), "0");
    assert!(waiter.int() > 0);
}

/// Words that commands are made of, valid and not.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "k",
        "k{",
        "redisson_lock_queue:{k}",
        "",
        "a",
        "b",
        "*",
        "LEASE",
        "WAIT",
        "NOWAIT",
        "ENQUEUE",
        "PATIENCE",
        "ONCE",
        "SESSION",
        "SHARED",
        "TOKEN",
        "ALL",
        "LIMIT",
        "OWNER",
        "FORCE",
        "COUNT",
        "AFTER",
        "0",
        "1",
        "5",
        "-1",
        "4503599627370496",
        "9223372036854775807",
        "99999999999999999999",
    ]);
    prop_oneof![
        8 => known.prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..300),
    ]
}

/// Commands of the module, and some of the server's own.
fn names() -> Vec<String> {
    let own = COMMANDS.iter().map(|command| command.name);
    let own = own.chain(["ACQUIRE", "EVAL", "EVALSHA"]);
    let others = ["SET", "DEL", "RPUSH", "LPOP", "ZREM", "HSET"];
    let own = own.map(|name| format!("FAIRLOCK.{name}"));
    own.chain(others.map(str::to_owned)).collect()
}

fn command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let name = prop::sample::select(names());
    (name, prop::collection::vec(word(), 0..7)).prop_map(|(name, words)| {
        let mut command = vec![name.into_bytes()];
        command.extend(words);
        command
    })
}

#[test]
fn no_command_crashes_or_wedges_the_server() {
    let server = Server::start();
    let client = RefCell::new(server.connect());
    let process = || server.info("server", "process_id");
    let before = process();
    let config = ProptestConfig::with_cases(3_000);
    proptest!(config, |(command in command())| {
        let mut client = client.borrow_mut();
        // In a transaction it cannot block.
        client.run("MULTI");
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let _ = client.raw(&words);
        client.run("EXEC");
        prop_assert_eq!(client.run("PING"), "PONG");
    });
    assert_eq!(process(), before);
    assert!(!server.log().contains("panic"), "{}", server.log());
}
