//! `fairlock locks` and `top`.

use std::collections::HashSet;

use fairlock_testing::{Client, Server};
use serde_json::Value;

use crate::program;

/// What the program prints, without an error. What no two runs have in common is a star.
#[track_caller]
fn said(server: &Server, arguments: &str) -> String {
    let out = program::ended(server.port, arguments).said();
    let out = out.replace(&format!("127.0.0.1:{}", server.port), "*");
    let star = |word: &str| match word.split_once('=') {
        Some((name @ ("held" | "lease" | "token"), _)) => format!("{name}=*"),
        _ => word.to_owned(),
    };
    out.split(' ').map(star).collect::<Vec<_>>().join(" ")
}

/// `stock` has two waiters, `alone` none, `pool` two holders, `open` a session; and a key that is not a lock.
fn scene() -> (Server, Client) {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE stock ann LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE stock one ENQUEUE");
    client.run("FAIRLOCK.ACQUIRE stock two SHARED 5 ENQUEUE");
    client.int("FAIRLOCK.ACQUIRE alone bob LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE pool carl SHARED LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE pool dora SHARED 3 LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE open carl SHARED SESSION");
    client.run("HSET data field 1");
    (server, client)
}

const BUSY: &str = "\
stock holder=ann held=* lease=* waiting=2 next=one token=* session=no node=*
pool holder=carl holders=2 limit=3 held=* lease=* waiting=0 next=- token=* session=no node=*
open holder=carl holders=1 limit=none held=* lease=* waiting=0 next=- token=* session=yes node=*
";

#[test]
fn what_is_a_lock_is_shown_on_a_line() {
    let (server, mut client) = scene();
    client.run_many([
        "SET text x",
        "HSET views page 5",
        "HSET rate:ann count 1",
        "PEXPIRE rate:ann 600000",
        "HSET person name ann age 7",
        // Named as Redisson names them, with no hold count.
        "HSET odd 0a1b2c3d-0000-4000-8000-00000000000f:42 0",
        "HSET odder 0a1b2c3d-0000-4000-8000-00000000000f:42 x",
        // Only the token is left.
        "FAIRLOCK.ACQUIRE left a",
        "HDEL left a",
        // A key of the lock is another's.
        "FAIRLOCK.ACQUIRE bad a",
        "SET redisson_lock_queue:{bad} x",
        "HSET redissons 0a1b2c3d-0000-4000-8000-00000000000f:42 1",
        "FAIRLOCK.ACQUIRE a\n\u{1b}[2J x",
    ]);
    assert_eq!(said(&server, "locks --busy"), BUSY);
    let all = said(&server, "locks");
    assert!(all.starts_with(BUSY) && all.lines().count() == 6, "{all}");
    for line in [
        "alone holder=bob held=* lease=* waiting=0 next=- token=* session=no node=*",
        "a\\n\\u{1b}[2J holder=x held=* lease=* waiting=0 next=- token=* session=no node=*",
        "redissons holder=0a1b2c3d-0000-4000-8000-00000000000f:42 held=* lease=* waiting=0 next=- token=* session=no node=*",
    ] {
        assert!(all.lines().any(|shown| shown == line), "{line}: {all}");
    }
    let objects = program::ended(server.port, "locks --busy --json").said();
    let objects: Result<Vec<Value>, _> = objects.lines().map(serde_json::from_str).collect();
    let [stock, _, open] = &objects.expect("JSON")[..] else {
        panic!("three locks");
    };
    assert_eq!(stock["name"], "stock");
    assert_eq!(stock["next"], "one");
    assert_eq!(open["limit"], Value::Null);
    assert!(stock["lease_ms"].as_i64() > Some(500_000));
}

#[test]
fn top_has_the_figures_and_as_many_locks_as_it_shows_and_locks_has_all() {
    let (server, mut client) = scene();
    let top = || program::ended(server.port, "top --interval 10ms --sort name").said();
    let names = |out: &str| -> Vec<String> {
        let words = out.lines().skip(1).map(|line| line.split(' ').next());
        words.flatten().map(str::to_owned).collect()
    };
    let out = top();
    let rates = "hand-offs=0.0/s acquisitions=0.0/s ";
    assert!(out.starts_with(rates), "{out}");
    assert!(out.contains(" blocked=0 sessions=1 locks=3\n"), "{out}");
    assert_eq!(names(&out), ["open", "pool", "stock"]);
    client.run_many((0..1_000).map(|n| format!("FAIRLOCK.ACQUIRE s{n} a SESSION")));
    let out = top();
    // One of them has two holders.
    let notice = " only 999 locks are shown: ";
    assert!(out.contains(notice), "{out}");
    assert_eq!(names(&out).len(), 1_000);
    client.run_many((0..3_000).map(|n| format!("FAIRLOCK.ACQUIRE l{n} a LEASE 600000")));
    let listed = program::ended(server.port, "locks").said();
    let listed = listed.lines().filter_map(|line| line.split(' ').next());
    assert_eq!(listed.collect::<HashSet<_>>().len(), 4_004);
}

#[test]
fn a_reader_that_has_enough_ends_it() {
    let server = Server::start();
    for command in ["top --interval 1ms", "locks", "metrics"] {
        // Its end may be closed before anything is printed.
        let line = format!("(\"$FAIRLOCK\" {command}; echo $? >&2) | true");
        let ended = program::in_shell(server.port, &line).end();
        assert_eq!((ended.code, ended.errors.as_str()), (0, "0\n"), "{ended:?}");
    }
}
