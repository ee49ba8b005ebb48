//! `fairlock locks`, `top` as lines, `info` and `break`.

use std::collections::HashSet;

use fairlock_testing::Server;
use serde_json::{Value, json};

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

#[track_caller]
fn objects(server: &Server, arguments: &str) -> Vec<Value> {
    let out = program::ended(server.port, format!("{arguments} --json")).said();
    let objects = out.lines().map(serde_json::from_str);
    objects.collect::<Result<_, _>>().expect("JSON")
}

const BUSY: &str = "\
stock holder=ann held=* lease=* waiting=2 next=one token=* session=no node=*
pool holder=carl holders=2 limit=3 held=* lease=* waiting=0 next=- token=* session=no node=*
";

const INFO: &str = "\
lock     stock
holder   ann holds=1 lease=* token=* session=no
waiting  2
next     one
node     *
lock     pool
holder   carl holds=1 lease=* token=* session=no limit=none
holder   dora holds=1 lease=* token=* session=yes limit=3
waiting  0
next     -
node     *
lock     nothing
holder   (free)
waiting  0
next     -
node     *
";

/// `stock` has two waiters, `pool` two holders and a session, `alone` nothing of it.
#[test]
fn top_shows_what_goes_on_and_locks_all_that_is_a_lock_and_info_all_holders() {
    let (server, mut client) = Server::connected();
    client.run_many([
        "FAIRLOCK.ACQUIRE stock ann LEASE 600000",
        "FAIRLOCK.ACQUIRE stock one ENQUEUE",
        "FAIRLOCK.ACQUIRE stock two SHARED 5 ENQUEUE",
        "FAIRLOCK.ACQUIRE pool carl SHARED LEASE 600000",
        "FAIRLOCK.ACQUIRE pool dora SHARED 3 LEASE 600000 SESSION",
        "FAIRLOCK.ACQUIRE alone bob LEASE 600000",
        "FAIRLOCK.ACQUIRE a\n\u{1b}[2J x",
        "HSET redissons 0a1b2c3d-0000-4000-8000-00000000000f:42 1",
        // What follows is no lock.
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
    ]);
    let top = || said(&server, "top --interval 10ms");
    let out = top();
    let rates = "hand-offs=0.0/s acquisitions=0.0/s ";
    assert!(out.starts_with(rates), "{out}");
    let figures = format!(" blocked=0 sessions=1 locks=2\n{BUSY}");
    assert!(out.ends_with(&figures), "{out}");
    assert_eq!(said(&server, "locks --busy"), BUSY);
    let all = said(&server, "locks");
    assert!(all.starts_with(BUSY) && all.lines().count() == 5, "{all}");
    for lock in [
        "alone holder=bob",
        "a\\n\\u{1b}[2J holder=x",
        "redissons holder=0a1b2c3d-0000-4000-8000-00000000000f:42",
    ] {
        let line = format!("{lock} held=* lease=* waiting=0 next=- token=* session=no node=*");
        assert!(all.lines().any(|shown| shown == line), "{line}: {all}");
    }
    let info = ["stock", "pool", "nothing"].map(|lock| said(&server, &format!("info {lock}")));
    assert_eq!(info.concat(), INFO);
    let pool = &objects(&server, "info pool")[0]["holders"];
    let limits = [0, 1].map(|at| json!([pool[at]["owner"], pool[at]["limit"]]));
    assert_eq!(limits, [json!(["carl", null]), json!(["dora", 3])]);
    let found = objects(&server, "locks --filter ONE");
    let next = found.iter().map(|lock| json!([lock["name"], lock["next"]]));
    assert!(next.eq([json!(["stock", "one"]), json!(["alone", null])]));
    assert!(found[1]["lease_ms"].as_i64() > Some(500_000));

    client.run_many((0..1_000).map(|n| format!("FAIRLOCK.ACQUIRE s{n} a SESSION")));
    let out = top();
    // One of them has two holders.
    assert!(out.contains(" only 999 locks are shown: "), "{out}");
    assert_eq!(out.lines().count(), 1_001);
    client.run_many((0..3_000).map(|n| format!("FAIRLOCK.ACQUIRE l{n} a LEASE 600000")));
    let listed = program::ended(server.port, "locks").said();
    let listed = listed.lines().filter_map(|line| line.split(' ').next());
    assert_eq!(listed.collect::<HashSet<_>>().len(), 4_005);
}

#[test]
fn a_lock_is_freed_and_goes_to_the_next_and_what_is_no_lock_is_left_alone() {
    let (server, mut client) = Server::connected();
    client.run("HSET data a 1");
    client.run("SET text x");
    for (arguments, code) in [
        ("break data", "NOTALOCK"),
        ("break text", "WRONGTYPE"),
        ("info text", "WRONGTYPE"),
        ("exec text -- true", "WRONGTYPE"),
    ] {
        program::ended(server.port, arguments).failed(69, code);
    }
    assert_eq!(client.run("EXISTS data text"), "2");
    client.int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    let bob = server.block("FAIRLOCK.ACQUIRE k bob");
    client.int("FAIRLOCK.ACQUIRE pool ann SHARED");
    client.int("FAIRLOCK.ACQUIRE pool bob SHARED");
    for (lock, options, was, is) in [
        ("k", "", "held by ann", "held by bob"),
        ("k", "", "held by bob", "free"),
        ("k", "", "not held", "free"),
        ("pool", "--owner bob", "held by bob", "held by ann"),
        ("pool", "--owner carl", "not held by carl", "held by ann"),
        ("data", "--force", "held by a", "free"),
    ] {
        let told = said(&server, &format!("break {lock} {options}"));
        assert_eq!(told, format!("{lock} was {was}; it is {is} now\n"));
    }
    bob.int();
}
