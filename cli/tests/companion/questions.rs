//! `fairlock locks`, `top` as lines, `info` and `break`.

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

#[track_caller]
fn objects(server: &Server, arguments: &str) -> Vec<Value> {
    let out = program::ended(server.port, format!("{arguments} --json")).said();
    let objects = out.lines().map(serde_json::from_str);
    objects.collect::<Result<_, _>>().expect("JSON")
}

/// `stock` has two waiters, `alone` none, `pool` two holders; and a key that is not a lock.
fn scene() -> (Server, Client) {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE stock ann LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE stock one ENQUEUE");
    client.run("FAIRLOCK.ACQUIRE stock two SHARED 5 ENQUEUE");
    client.int("FAIRLOCK.ACQUIRE alone bob LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE pool carl SHARED LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE pool dora SHARED 3 LEASE 600000 SESSION");
    client.run("HSET data field 1");
    (server, client)
}

const BUSY: &str = "\
stock holder=ann held=* lease=* waiting=2 next=one token=* session=no node=*
pool holder=carl holders=2 limit=3 held=* lease=* waiting=0 next=- token=* session=no node=*
";

#[test]
fn locks_are_shown_each_on_a_line_or_one_with_all_its_holders() {
    let (server, mut client) = scene();
    for (arguments, shown) in [
        ("locks --busy", BUSY),
        (
            "info stock",
            "\
lock     stock
holder   ann holds=1 lease=* token=* session=no
waiting  2
next     one
node     *
",
        ),
        (
            "info pool",
            "\
lock     pool
holder   carl holds=1 lease=* token=* session=no limit=none
holder   dora holds=1 lease=* token=* session=yes limit=3
waiting  0
next     -
node     *
",
        ),
        (
            "info nothing",
            "\
lock     nothing
holder   (free)
waiting  0
next     -
node     *
",
        ),
    ] {
        assert_eq!(said(&server, arguments), shown);
    }
    let pool = &objects(&server, "info pool")[0];
    assert_eq!(pool["holders"][1]["owner"], "dora");
    assert_eq!(pool["holders"][1]["limit"], 3);
    assert_eq!(pool["holders"][0]["limit"], Value::Null);
    client.int("FAIRLOCK.ACQUIRE a\n\u{1b}[2J x");
    let all = said(&server, "locks");
    assert!(all.starts_with(BUSY) && all.lines().count() == 4, "{all}");
    assert!(all.contains("\na\\n\\u{1b}[2J holder=x held="), "{all}");
    let found = objects(&server, "locks --filter ONE");
    let names = found
        .iter()
        .map(|lock| (lock["name"].as_str(), lock["next"].as_str()));
    let expected = [(Some("stock"), Some("one")), (Some("alone"), None)];
    assert!(names.eq(expected), "{found:?}");
    assert!(found[1]["lease_ms"].as_i64() > Some(500_000));
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
    assert!(out.contains(" blocked=0 sessions=1 locks=2\n"), "{out}");
    assert_eq!(names(&out), ["pool", "stock"]);
    client.run_many((0..1_000).map(|n| format!("FAIRLOCK.ACQUIRE s{n} a SESSION")));
    let out = top();
    // One of them has two holders.
    let notice = " only 999 locks are shown: ";
    assert!(out.contains(notice), "{out}");
    assert_eq!(names(&out).len(), 1_000);
    client.run_many((0..3_000).map(|n| format!("FAIRLOCK.ACQUIRE l{n} a LEASE 600000")));
    let listed = program::ended(server.port, "locks").said();
    let listed = listed.lines().filter_map(|line| line.split(' ').next());
    assert_eq!(listed.collect::<HashSet<_>>().len(), 4_003);
}

#[test]
fn what_is_no_lock_is_not_listed() {
    let (server, mut client) = Server::connected();
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
    ]);
    let listed = "\
redissons holder=0a1b2c3d-0000-4000-8000-00000000000f:42 held=* lease=* waiting=0 next=- token=* session=no node=*
";
    assert_eq!(said(&server, "locks"), listed);
}

#[test]
fn a_reader_that_has_enough_ends_it() {
    let server = Server::start();
    for command in ["top --interval 1ms", "locks", "info k", "metrics"] {
        // Its end may be closed before anything is printed.
        let line = format!("(\"$FAIRLOCK\" {command}; echo $? >&2) | true");
        let ended = program::in_shell(server.port, &line).end();
        assert_eq!((ended.code, ended.errors.as_str()), (0, "0\n"), "{ended:?}");
    }
}

#[test]
fn a_lock_is_freed_and_goes_to_the_next() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    let bob = server.block("FAIRLOCK.ACQUIRE k bob");
    for owner in ["ann", "bob"] {
        client.int(&format!("FAIRLOCK.ACQUIRE pool {owner} SHARED"));
    }
    client.run("HSET data a 1");
    for (options, told) in [
        ("k", "k was held by ann; it is held by bob now"),
        ("k", "k was held by bob; it is free now"),
        ("k", "k was not held; it is free now"),
        (
            "pool --owner ann",
            "pool was held by ann; it is held by bob now",
        ),
        (
            "pool --owner carl",
            "pool was not held; it is held by bob now",
        ),
        ("data --force", "data was held by a; it is free now"),
    ] {
        assert_eq!(
            said(&server, &format!("break {options}")),
            format!("{told}\n")
        );
    }
    bob.int();
}
