//! `fairlock locks`, `top` as lines, `info` and `break`.

use std::collections::HashSet;

use fairlock_testing::{Client, Server};
use serde_json::Value;

use crate::program::Program;

/// What the program prints, without an error.
#[track_caller]
fn said(server: &Server, args: &[&str]) -> String {
    Program::ended(server.port, args).said()
}

#[track_caller]
fn objects(server: &Server, args: &[&str]) -> Vec<Value> {
    let out = said(server, &[args, &["--json"]].concat());
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

#[test]
fn locks_are_listed_each_on_a_line_the_busiest_first() {
    let (server, mut client) = scene();
    client.int("FAIRLOCK.ACQUIRE a\n\u{1b}[2J x");
    let out = said(&server, &["locks"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].starts_with("stock holder=ann held="), "{out}");
    assert!(lines[0].contains(" waiting=2 next=one token="), "{out}");
    assert!(lines[0].contains(" session=no node=127.0.0.1:"), "{out}");
    let pool = "pool holder=carl holders=2 limit=3 ";
    assert!(lines[1].starts_with(pool), "{out}");
    assert!(out.contains("\na\\n\\u{1b}[2J holder=x held="), "{out}");
    assert_eq!(said(&server, &["locks", "--busy"]).lines().count(), 2);
    let found = objects(&server, &["locks", "--filter", "ONE"]);
    let names = found.iter().map(|lock| lock["name"].as_str());
    assert!(names.eq([Some("stock"), Some("alone")]), "{found:?}");
    assert_eq!(found[0]["next"], "one");
    assert_eq!(found[1]["next"], Value::Null);
    assert!(found[1]["lease_ms"].as_i64() > Some(500_000));
}

#[test]
fn top_has_the_figures_and_as_many_locks_as_it_shows_and_locks_has_all() {
    let (server, mut client) = scene();
    let top = || said(&server, &["top", "--interval", "10ms", "--sort", "name"]);
    let names = |out: &str| -> Vec<String> {
        let words = out.lines().skip(1).map(|line| line.split(' ').next());
        words.flatten().map(str::to_owned).collect()
    };
    let out = top();
    let rates = "hand-offs=0.0/s acquisitions=0.0/s ";
    assert!(out.starts_with(rates), "{out}");
    assert!(out.contains(" blocked=0 sessions=1 locks=2\n"), "{out}");
    assert_eq!(names(&out), ["alone", "pool", "stock"]);
    // It gets them all in two pages, and shows fewer.
    client.run_many((0..1_000).map(|n| format!("FAIRLOCK.ACQUIRE s{n} a SESSION")));
    let out = top();
    let notice = " only 1000 locks are shown, those with most";
    assert!(out.contains(notice), "{out}");
    assert_eq!(names(&out).len(), 1_001);
    client.run_many((0..3_000).map(|n| format!("FAIRLOCK.ACQUIRE l{n} a LEASE 600000")));
    let listed = said(&server, &["locks"]);
    let listed = listed.lines().filter_map(|line| line.split(' ').next());
    assert_eq!(listed.collect::<HashSet<_>>().len(), 4_003);
}

#[test]
fn a_reader_that_has_enough_ends_it() {
    let server = Server::start();
    for command in ["top --interval 1ms", "locks", "info k", "metrics"] {
        // Its end may be closed before anything is printed.
        let line = format!("(\"$FAIRLOCK\" {command}; echo $? >&2) | true");
        let ended = Program::in_shell(server.port, &line).end();
        assert_eq!((ended.code, ended.errors.as_str()), (0, "0\n"), "{ended:?}");
    }
}

#[test]
fn a_lock_is_shown_with_all_its_holders() {
    let (server, _client) = scene();
    for (lock, part) in [
        ("stock", "lock     stock\nholder   ann holds=1 lease="),
        ("stock", "\nwaiting  2\nnext     one\nnode     127.0.0.1:"),
        ("pool", " session=no limit=none\nholder   dora holds=1 "),
        ("pool", " session=yes limit=3\n"),
        ("nothing", "\nholder   (free)\nwaiting  0\nnext     -\n"),
    ] {
        let out = said(&server, &["info", lock]);
        assert!(out.contains(part), "{part}: {out}");
    }
    let pool = &objects(&server, &["info", "pool"])[0];
    assert_eq!(pool["holders"][1]["owner"], "dora");
    assert_eq!(pool["holders"][1]["limit"], 3);
    assert_eq!(pool["holders"][0]["limit"], Value::Null);
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
        ("k", "k was held by ann; it is held by bob now\n"),
        ("k", "k was held by bob; it is free now\n"),
        ("k", "k was not held; it is free now\n"),
        (
            "pool --owner ann",
            "pool was held by ann; it is held by bob now\n",
        ),
        (
            "pool --owner carl",
            "pool was not held; it is held by bob now\n",
        ),
        ("data --force", "data was held by a; it is free now\n"),
    ] {
        let line = format!("break {options}");
        let args: Vec<_> = line.split(' ').collect();
        assert_eq!(said(&server, &args), told);
    }
    bob.int();
}

#[test]
fn what_is_not_a_lock_is_left_alone() {
    let (server, mut client) = Server::connected();
    client.run("HSET data a 1");
    client.run("SET text x");
    for (args, code) in [
        (&["break", "data"][..], "NOTALOCK"),
        (&["break", "text"], "WRONGTYPE"),
        (&["info", "text"], "WRONGTYPE"),
        (&["exec", "text", "--", "true"], "WRONGTYPE"),
    ] {
        Program::ended(server.port, args).failed(69, code);
    }
    assert_eq!(client.run("EXISTS data text"), "2");
}
