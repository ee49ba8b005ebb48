//! `FAIRLOCK.LOCKS ALL`.

use fairlock_testing::{Client, Server, follow, wait_until};

use super::locks::{names, pages};

/// An owner as Redisson names them.
const REDISSONS: &str = "0a1b2c3d-0000-4000-8000-00000000000f:42";

/// All locks, by name.
fn sorted(client: &mut Client) -> Vec<String> {
    let mut all = pages(client, "FAIRLOCK.LOCKS ALL", 1_020);
    all.sort_unstable();
    all
}

#[test]
fn it_lists_every_lock_that_is_held() {
    let (_server, mut client) = Server::connected();
    client.assert_reply("FAIRLOCK.LOCKS ALL", "[]");
    client.int("FAIRLOCK.ACQUIRE alone a");
    client.int("FAIRLOCK.ACQUIRE {a}tag a LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE bound a SESSION");
    client.int("FAIRLOCK.ACQUIRE read a SHARED");
    client.int("FAIRLOCK.ACQUIRE read b SHARED 5");
    client.int("FAIRLOCK.ACQUIRE wanted a");
    client.run("FAIRLOCK.ACQUIRE wanted b ENQUEUE");
    // As Redisson's getLock() does.
    client.run(&format!("HSET plain {REDISSONS} 1"));
    client.run("PEXPIRE plain 600000");
    let all = ["alone", "bound", "plain", "read", "wanted", "{a}tag"];
    assert_eq!(sorted(&mut client), all);
    // First those that are listed without ALL.
    let first = names(&mut client, "FAIRLOCK.LOCKS all");
    let recorded = names(&mut client, "FAIRLOCK.LOCKS");
    assert_eq!(recorded.len(), 3);
    assert_eq!(first[..3], recorded);
    assert_eq!(
        names(&mut client, "fairlock.locks count 1 all"),
        recorded[..1]
    );
    client.assert_reply("FAIRLOCK.LOCKS ALL COUNT 0", "[]");
    client.run("FAIRLOCK.RELEASE alone a");
    client.run("DEL plain");
    assert_eq!(sorted(&mut client), ["bound", "read", "wanted", "{a}tag"]);
}

#[test]
fn what_is_no_lock_is_not_listed() {
    let (_server, mut client) = Server::connected();
    for command in [
        "SET text x",
        "RPUSH list a",
        "HSET views page 5",
        "HSET rate:ann count 1",
        "PEXPIRE rate:ann 600000",
        "HSET person name ann age 7",
        // Named as Redisson names them, with no hold count.
        "HSET odd 0a1b2c3d-0000-4000-8000-00000000000f:42 0",
        "HSET odder 0a1b2c3d-0000-4000-8000-00000000000f:42 x",
        // More than one owner without shared holders.
        "FAIRLOCK.ACQUIRE two a",
        "HSET two b 1",
        // Only the token is left.
        "FAIRLOCK.ACQUIRE left a",
        "HDEL left a",
        "FAIRLOCK.ACQUIRE short a LEASE 1",
    ] {
        client.run(command);
    }
    let no_token = [b"HSET", &b"user"[..], b"", b"x", b"a", b"1"];
    client.raw(&no_token).expect("set");
    wait_until("the lease is over", || client.run("EXISTS short") == "0");
    client.assert_reply("FAIRLOCK.LOCKS ALL", "[]");
}

/// The listing, and for how long the only lock in it is held.
fn listed(client: &mut Client, command: &str) -> (String, i64) {
    let list = client.run(command);
    let held = list.split("held: ").nth(1).expect("held");
    let held = held.trim_end_matches("}]").parse().expect("a number");
    (list, held)
}

#[test]
fn it_says_what_info_says_and_for_how_long_the_lock_is_held() {
    for (command, session) in [("FAIRLOCK.LOCKS", true), ("FAIRLOCK.LOCKS ALL", false)] {
        let server = Server::start();
        let mut client = server.connect_resp3();
        let bound = if session { " SESSION" } else { "" };
        let token = client.int(&format!("FAIRLOCK.ACQUIRE k a LEASE 600000{bound}"));
        wait_until("held for a while", || listed(&mut client, command).1 > 20);
        let (list, _) = listed(&mut client, command);
        let (start, rest) = list.split_once("lease: 59").expect("a lease");
        assert_eq!(start, "[{name: k, owner: a, holds: 1, ");
        let expected = format!(
            ", token: {token}, session: {session}, waiting: 0, next: (nil), holders: 1, limit: 1, held: "
        );
        assert!(rest.contains(&expected), "{list}");
        client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
        let (list, _) = listed(&mut client, command);
        assert!(list.contains(", waiting: 1, next: b, "), "{list}");
    }
}

#[test]
fn for_how_long_a_script_has_held_the_lock_is_not_known() {
    let server = Server::start();
    let mut client = server.connect_resp3();
    client.run(&format!("HSET k {REDISSONS} 2"));
    client.run("PEXPIRE k 600000");
    let (list, held) = listed(&mut client, "FAIRLOCK.LOCKS ALL");
    assert_eq!(held, -1);
    assert!(list.contains("holds: 2, "), "{list}");
    assert!(list.contains("token: (nil), "), "{list}");
}

#[test]
fn among_many_keys_each_lock_is_found() {
    let (_server, mut client) = Server::connected();
    client.run_many((0..3_000).map(|n| format!("FAIRLOCK.ACQUIRE l{n:04} a LEASE 600000")));
    client.run_many((0..150).map(|n| format!("FAIRLOCK.ACQUIRE s{n:04} a SESSION")));
    client.run_many((0..20_000).map(|n| format!("SET text{n} x")));
    client.run_many((0..3_000).map(|n| format!("HSET hash{n} field {n}")));
    let mut expected: Vec<String> = (0..3_000).map(|n| format!("l{n:04}")).collect();
    expected.extend((0..150).map(|n| format!("s{n:04}")));
    // The walk meets those with a session again.
    let mut all = sorted(&mut client);
    assert!(all.len() <= expected.len() + 150, "{}", all.len());
    all.dedup();
    assert_eq!(all, expected);
    // Some at a time.
    let mut walked = pages(&mut client, "FAIRLOCK.LOCKS ALL COUNT 50", 89);
    walked.sort_unstable();
    walked.dedup();
    assert_eq!(walked, expected);
}

#[test]
fn a_replica_knows_of_no_waiters_and_lists_what_is_held_by_its_keys() {
    let (master, replica) = (Server::start(), Server::start());
    let mut client = master.connect();
    client.int("FAIRLOCK.ACQUIRE k a SESSION");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    client.int("FAIRLOCK.ACQUIRE read a SHARED");
    client.int("FAIRLOCK.ACQUIRE read b SHARED");
    follow(&replica, &master);
    let mut reader = replica.connect();
    wait_until("the replica has the locks", || {
        reader.run("DBSIZE") == client.run("DBSIZE")
    });
    reader.assert_reply("FAIRLOCK.LOCKS", "[]");
    assert_eq!(sorted(&mut reader), ["k", "read"]);
    let list = reader.run("FAIRLOCK.LOCKS ALL");
    assert!(list.contains("holders, 2, "), "{list}");
    // It has not granted them.
    assert_eq!(list.matches("held, -1").count(), 2, "{list}");
}

#[test]
fn a_key_that_the_walk_meets_does_not_count_as_used() {
    let (_server, mut client) = Server::connected();
    client.run("HSET data field 1");
    wait_until("the key is idle", || client.int("OBJECT IDLETIME data") > 0);
    client.assert_reply("FAIRLOCK.LOCKS ALL", "[]");
    assert!(client.int("OBJECT IDLETIME data") > 0);
}

#[test]
fn what_it_cannot_read_is_refused() {
    const NO_CURSOR: &str =
        "(error) ERR AFTER is not a cursor from fairlock.locks: start again without AFTER";
    const NO_COUNT: &str =
        "(error) ERR COUNT is not a whole number from 0 to 9223372036854775807, or -1 for all";
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    for (words, error) in [
        ("ALL AFTER -1", NO_CURSOR),
        ("ALL AFTER +1", NO_CURSOR),
        ("ALL AFTER 01", NO_CURSOR),
        ("ALL AFTER 18446744073709551616", NO_CURSOR),
        ("AFTER x", NO_CURSOR),
        ("COUNT -2", NO_COUNT),
        ("COUNT x", NO_COUNT),
        (
            "AFTER 17",
            "(error) ERR AFTER is not a cursor from fairlock.locks without ALL: start again without AFTER",
        ),
    ] {
        assert_eq!(
            client.run(&format!("FAIRLOCK.LOCKS {words}")),
            error,
            "{words}"
        );
    }
    // A walk may go on at any number, as with SCAN.
    for place in [0, 1, 1_234_567, u64::MAX] {
        let reply = client.run(&format!("FAIRLOCK.LOCKS ALL AFTER {place}"));
        assert!(reply.starts_with('['), "{reply}");
    }
}

#[test]
fn without_scan_it_says_why_it_cannot() {
    let (_server, mut client) = Server::connected_with(&["--rename-command", "SCAN", "hidden"]);
    client.int("FAIRLOCK.ACQUIRE k a SESSION");
    client.assert_reply("FAIRLOCK.LOCKS ALL", "(error) ERR the server's configuration has renamed SCAN (rename-command), which this needs");
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), ["k"]);
}
