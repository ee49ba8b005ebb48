//! `fairlock locks`, `info` and `break`.

use std::collections::HashSet;

use fairlock_testing::{Client, Server, follow, wait_until};
use serde_json::{Value, json};

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
fn scene(server: &Server) -> Client {
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE stock ann LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE stock one ENQUEUE");
    client.run("FAIRLOCK.ACQUIRE stock two SHARED 5 ENQUEUE");
    client.int("FAIRLOCK.ACQUIRE alone bob LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE pool carl SHARED LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE pool dora SHARED 3 LEASE 600000 SESSION");
    client.run("HSET data field 1");
    client
}

#[test]
fn locks_are_listed_each_on_a_line() {
    let server = Server::start();
    assert_eq!(said(&server, &["locks"]), "");
    let _client = scene(&server);
    let out = said(&server, &["locks"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].starts_with("stock holder=ann held="), "{out}");
    assert!(lines[0].contains(" waiting=2 next=one token="), "{out}");
    let pool = "pool holder=carl holders=2 limit=3 ";
    assert!(lines[1].starts_with(pool), "{out}");
    assert!(lines[2].starts_with("alone holder=bob held="), "{out}");
    assert_eq!(said(&server, &["locks", "--busy"]).lines().count(), 2);
    let filtered = said(&server, &["locks", "--filter", "BOB"]);
    assert_eq!(filtered.lines().count(), 1, "{filtered}");
    let objects = objects(&server, &["locks"]);
    assert_eq!(objects[0]["next"], "one");
    assert_eq!(objects[2]["name"], "alone");
    assert_eq!(objects[2]["next"], Value::Null);
    assert!(objects[2]["lease_ms"].as_i64() > Some(500_000));
}

#[test]
fn very_many_locks_are_all_listed() {
    let (server, mut client) = Server::connected();
    client.run_many((0..4_000).map(|n| format!("FAIRLOCK.ACQUIRE l{n:05} a LEASE 600000")));
    let out = said(&server, &["locks"]);
    let names = out.lines().filter_map(|line| line.split(' ').next());
    assert_eq!(names.collect::<HashSet<_>>().len(), 4_000);
}

#[test]
fn a_lock_is_shown_with_all_its_holders() {
    let server = Server::start();
    let _client = scene(&server);
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
    assert_eq!(
        objects(&server, &["info", "nothing"])[0]["holders"],
        json!([])
    );
}

#[test]
fn a_lock_is_freed_and_goes_to_the_next() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    let bob = server.block("FAIRLOCK.ACQUIRE k bob");
    let broken = || said(&server, &["break", "k"]);
    assert_eq!(broken(), "k was held by ann; it is held by bob now\n");
    bob.int();
    assert_eq!(broken(), "k was held by bob; it is free now\n");
    assert_eq!(broken(), "k was not held; it is free now\n");
    for owner in ["ann", "bob"] {
        client.int(&format!("FAIRLOCK.ACQUIRE pool {owner} SHARED"));
    }
    let out = said(&server, &["break", "pool", "--owner", "ann"]);
    assert_eq!(out, "pool was held by ann; it is held by bob now\n");
    let out = said(&server, &["break", "pool", "--owner", "carl"]);
    assert_eq!(out, "pool was not held; it is held by bob now\n");
}

#[test]
fn what_may_be_data_is_freed_by_force_only() {
    let (server, mut client) = Server::connected();
    client.run("HSET k a 1");
    Program::ended(server.port, &["break", "k"]).failed(69, "NOTALOCK");
    assert_eq!(client.run("EXISTS k"), "1");
    assert_eq!(
        said(&server, &["break", "k", "--force"]),
        "k was held by a; it is free now\n"
    );
    client.run("SET text x");
    for command in ["break", "info"] {
        Program::ended(server.port, &[command, "text"]).failed(69, "WRONGTYPE");
    }
}

#[test]
fn a_user_needs_an_administrators_permission_to_free_a_lock() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k ann");
    client.run("ACL SETUSER bob on >secret ~* +@all -@admin -@dangerous +info");
    let bob = |args: &[&str]| Program::ended_as("bob:secret", &server, args);
    bob(&["break", "k"]).failed(69, "ACL");
    assert!(bob(&["locks"]).said().starts_with("k holder=ann "));
}

#[test]
fn a_replica_shows_what_is_held() {
    let (master, replica) = (Server::start(), Server::start());
    let mut client = master.connect();
    client.int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    follow(&replica, &master);
    let mut reader = replica.connect();
    wait_until("it is there", || reader.run("EXISTS k") == "1");
    assert!(said(&replica, &["locks"]).starts_with("k holder=ann held=? "));
    assert!(said(&replica, &["info", "k"]).contains("holder   ann "));
    Program::ended(replica.port, &["break", "k"]).failed(69, "is a replica");
}
