//! Input that is wrong on purpose: a clear error, nothing changed, and the server lives.

use fairlock_testing::Server;
use fairlock_testing::commands::{COMMANDS, calls_of_a_lock, on};
use redis::Value;

use crate::scene::AOF;

const WRONGTYPE: &str = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn arguments_that_are_missing_or_too_many_are_refused() {
    let (_server, mut client) = Server::connected();
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
    client.assert_reply("DBSIZE", "0");
}

/// Calls, and what the error names.
const SYNTAX: &str = "
    ACQUIRE k a SOON -> expected SHARED, LEASE, WAIT, NOWAIT, ENQUEUE, PATIENCE, SESSION or ONCE
    ACQUIRE k a LEASE -> LEASE needs a value
    ACQUIRE k a LEASE 5 LEASE 6 -> LEASE is given twice
    BREAK k a -> unknown option, expected OWNER or FORCE
    ACQUIRE k a PATIENCE 5 patience 6 -> PATIENCE is given twice
    ACQUIRE k a WAIT 5 NOWAIT -> only one of WAIT, NOWAIT and ENQUEUE can be given
    ACQUIRE k a NOWAIT ENQUEUE -> only one of WAIT, NOWAIT and ENQUEUE can be given
    ACQUIRE k a SHARED two -> SESSION or ONCE
    BREAK k OWNER -> OWNER needs a value
    RELEASE k a NOW -> expected TOKEN or ALL
    RENEW k a 5 -> expected LEASE
    QUEUE k LIMIT -> LIMIT offset needs a value
    QUEUE k LIMIT 1 -> LIMIT count needs a value
    QUEUE k FIRST -> expected LIMIT
    LOCKS k -> expected COUNT or AFTER";

#[test]
fn options_that_are_unknown_repeated_or_contradict_each_other_are_refused() {
    let (_server, mut client) = Server::connected();
    for case in SYNTAX.trim().lines() {
        let (words, named) = case.trim().split_once(" -> ").expect("two parts");
        let error = client.run(&format!("FAIRLOCK.{words}"));
        assert!(
            error.starts_with("(error) ERR syntax error"),
            "{words}: {error}"
        );
        assert!(error.ends_with(named), "{words}: {error}");
    }
    client.assert_reply("DBSIZE", "0");
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    let (_server, mut client) = Server::connected();
    for value in ["0", "-1", "4503599627370497", "x"] {
        for option in ["LEASE", "WAIT", "PATIENCE"] {
            let error = client.run(&format!("FAIRLOCK.ACQUIRE k a {option} {value}"));
            let expected = format!(
                "(error) ERR {option} is not a whole number of milliseconds from 1 to 4503599627370496"
            );
            assert_eq!(error, expected, "{value}");
        }
    }
    for value in ["0", "-1", "x", "9223372036854775808"] {
        let error = client.run(&format!("FAIRLOCK.RELEASE k a TOKEN {value}"));
        assert_eq!(
            error,
            "(error) ERR TOKEN is not a whole number from 1 to 9223372036854775807"
        );
    }
    for limit in ["0", "-1", "+1", ".5", "1000001"] {
        client.assert_reply(
            &format!("FAIRLOCK.ACQUIRE k a SHARED {limit}"),
            "(error) ERR SHARED limit is not a whole number from 1 to 1000000",
        );
    }
    for limit in ["-1 5", "x 5", "0 -2", "0 x"] {
        client.assert_start(
            &format!("FAIRLOCK.QUEUE k LIMIT {limit}"),
            "(error) ERR LIMIT ",
        );
    }
    for value in ["-2", "x"] {
        for (option, least) in [("COUNT", -1), ("AFTER", 0)] {
            client.assert_reply(
                &format!("FAIRLOCK.LOCKS {option} {value}"),
                &format!(
                    "(error) ERR {option} is not a whole number from {least} to 9223372036854775807"
                ),
            );
        }
    }
    client.assert_reply("DBSIZE", "0");
}

#[test]
fn the_longest_durations_are_taken() {
    let (server, mut client) = Server::connected();
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
fn names_and_owners_of_any_bytes_stay_what_they_are_also_in_files() {
    const NAME: &[u8] = b"k\0\r\n*1\r\n$8\r\nFLUSHALL\r\n\xff";
    let (server, mut client) = Server::connected_with(AOF);
    for length in [0, 257, 100_000] {
        let owner = vec![b'x'; length];
        let error = client.raw(&[b"FAIRLOCK.ACQUIRE", b"k", &owner]);
        let text = "ERR owner is not 1 to 256 bytes long";
        assert_eq!(error, Err(text.to_owned()));
    }
    let every: Vec<u8> = (0..=255).collect();
    for owner in [&[0xfe; 256][..], &every, b"\r\n$-1\r\n"] {
        let asked = client.raw(&[b"FAIRLOCK.ACQUIRE", NAME, owner, b"ENQUEUE"]);
        assert!(asked.is_ok(), "{asked:?}");
    }
    let server = server.kill_and_restart();
    let mut client = server.connect();
    let queue = client.raw(&[b"FAIRLOCK.QUEUE", NAME]);
    let shown = format!("{queue:?}");
    for owner in [&every[..], b"\r\n$-1\r\n"] {
        let owner = Value::BulkString(owner.to_vec());
        assert!(shown.contains(&format!("{owner:?}")), "{shown}");
    }
    let key = [b"redisson_lock_queue:{", NAME, b"}"].concat();
    let length = client.raw(&[b"LLEN", &key]);
    assert_eq!(length, Ok(Value::Int(2)));
    let released = client.raw(&[b"FAIRLOCK.RELEASE", NAME, &[0xfe; 256]]);
    assert_eq!(released, Ok(Value::Int(0)));
    let reply = client.raw(&[b"FAIRLOCK.ACQUIRE", b"", b"a"]);
    assert!(reply.is_ok(), "the empty key is a key: {reply:?}");
}

#[test]
fn a_lock_queue_or_deadline_key_of_another_type_is_refused_and_left_alone() {
    let (_server, mut client) = Server::connected();
    let calls = calls_of_a_lock();
    for key in ["k", "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}"] {
        client.run(&format!("SET {key} value"));
        // HOLDERS does not read the others.
        let reads = |call: &&String| key == "k" || !call.starts_with("HOLDERS");
        for call in calls.iter().filter(reads) {
            assert_eq!(client.run(&on(call, "k")), WRONGTYPE, "{key} {call}");
        }
        client.assert_reply(&format!("GET {key}"), "value");
        client.assert_reply("DBSIZE", "1");
        client.run("FLUSHALL");
    }
    // The token's key is checked, but no lock depends on it.
    client.run("RPUSH fairlock_token:{k} value");
    assert!(client.int("FAIRLOCK.ACQUIRE k a") > 0);
}

#[test]
fn an_entry_without_a_deadline_is_given_one() {
    let (_server, mut client) = Server::connected();
    client.run("HSET k a 1");
    client.run("RPUSH redisson_lock_queue:{k} b c");
    client.run("FAIRLOCK.ACQUIRE k d ENQUEUE");
    client.assert_reply("LRANGE redisson_lock_queue:{k} 0 -1", "[b, c, d]");
    let b = client.int("ZSCORE redisson_lock_timeout:{k} b");
    let c = client.int("ZSCORE redisson_lock_timeout:{k} c");
    // As if both had just joined: one patience after the other.
    assert!((c - b - 300_000).abs() < 5_000, "{b} {c}");
}
