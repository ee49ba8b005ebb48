//! `fairlock locks` and `top`.

use std::collections::HashSet;

use fairlock_testing::Server;
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

const BUSY: &str = "\
stock holder=ann held=* lease=* waiting=2 next=one token=* session=no node=*
pool holder=carl holders=2 limit=3 held=* lease=* waiting=0 next=- token=* session=no node=*
shelf holder=carl holders=1 limit=none held=* lease=* waiting=0 next=- token=* session=yes node=*
";

/// `stock` has two waiters, `pool` two holders, `shelf` a session, `alone` nothing of it.
#[test]
fn top_shows_what_goes_on_and_locks_all_that_is_a_lock() {
    let (server, mut client) = Server::connected();
    client.run_many([
        "FAIRLOCK.ACQUIRE stock ann LEASE 600000",
        "FAIRLOCK.ACQUIRE stock one ENQUEUE",
        "FAIRLOCK.ACQUIRE stock two SHARED 5 ENQUEUE",
        "FAIRLOCK.ACQUIRE pool carl SHARED LEASE 600000",
        "FAIRLOCK.ACQUIRE pool dora SHARED 3 LEASE 600000",
        "FAIRLOCK.ACQUIRE shelf carl SHARED SESSION",
        "FAIRLOCK.ACQUIRE alone bob LEASE 600000",
        // No locks.
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
        // But these are.
        "HSET redissons 0a1b2c3d-0000-4000-8000-00000000000f:42 1",
        "FAIRLOCK.ACQUIRE a\n\u{1b}[2J x",
    ]);
    let top = || said(&server, "top --interval 10ms");
    let out = top();
    assert!(
        out.starts_with("hand-offs=0.0/s acquisitions=0.0/s "),
        "{out}"
    );
    let figures = format!(" blocked=0 sessions=1 locks=3\n{BUSY}");
    assert!(out.ends_with(&figures), "{out}");
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
    let [stock, _, shelf] = &objects.expect("JSON")[..] else {
        panic!("three locks");
    };
    assert_eq!(stock["name"], "stock");
    assert_eq!(stock["next"], "one");
    assert_eq!(shelf["limit"], Value::Null);
    assert!(stock["lease_ms"].as_i64() > Some(500_000));

    client.run_many((0..1_000).map(|n| format!("FAIRLOCK.ACQUIRE s{n} a SESSION")));
    let out = top();
    // One of them has two holders.
    assert!(out.contains(" only 999 locks are shown: "), "{out}");
    assert_eq!(out.lines().count(), 1_001);
    client.run_many((0..3_000).map(|n| format!("FAIRLOCK.ACQUIRE l{n} a LEASE 600000")));
    let listed = program::ended(server.port, "locks").said();
    let listed = listed.lines().filter_map(|line| line.split(' ').next());
    assert_eq!(listed.collect::<HashSet<_>>().len(), 4_006);
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
