//! `FAIRLOCK.LOCKS`.

use fairlock_testing::{Client, Server, follow, wait_until};

/// The names of the locks that a client is shown, in order.
fn names(client: &mut Client, command: &str) -> Vec<String> {
    names_of(&client.run(command))
}

/// The names of the locks in a reply.
fn names_of(reply: &str) -> Vec<String> {
    let locks = reply.split("name, ").skip(1);
    locks
        .filter_map(|lock| lock.split(',').next())
        .map(ToOwned::to_owned)
        .collect()
}

/// By name.
fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}

#[test]
fn it_lists_locks_with_waiters_or_a_session_and_those_held_together() {
    let (_server, mut client) = Server::connected();
    client.assert_reply("FAIRLOCK.LOCKS", "[]");
    for (lock, waiters) in [("one", 1), ("three", 3)] {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} a"));
        for waiter in 0..waiters {
            client.run(&format!("FAIRLOCK.ACQUIRE {lock} w{waiter} ENQUEUE"));
        }
    }
    client.int("FAIRLOCK.ACQUIRE bound a SESSION");
    client.int("FAIRLOCK.ACQUIRE read a SHARED");
    client.int("FAIRLOCK.ACQUIRE alone a");
    for command in [
        "FAIRLOCK.LOCKS",
        "FAIRLOCK.LOCKS COUNT -1",
        "FAIRLOCK.LOCKS COUNT 4",
    ] {
        assert_eq!(cursor(&client.run(command)), None, "{command}");
        let all = sorted(names(&mut client, command));
        assert_eq!(all, ["bound", "one", "read", "three"]);
    }
    assert_eq!(names(&mut client, "fairlock.locks count 2").len(), 2);
    client.assert_reply("FAIRLOCK.LOCKS COUNT 0", "[]");
}

#[test]
fn a_lock_of_which_a_key_holds_something_else_is_not_listed() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE good a SESSION");
    client.int("FAIRLOCK.ACQUIRE bad a SESSION");
    client.run("FAIRLOCK.ACQUIRE bad b ENQUEUE");
    client.run("SET redisson_lock_queue:{bad} x");
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), ["good"]);
}

#[test]
fn each_database_has_its_own() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a SESSION");
    client.run("SELECT 1");
    client.assert_reply("FAIRLOCK.LOCKS", "[]");
    client.run("SWAPDB 0 1");
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), ["k"]);
    client.run("SELECT 0");
    client.assert_reply("FAIRLOCK.LOCKS", "[]");
}

#[test]
fn a_replica_knows_of_none() {
    let (master, replica) = (Server::start(), Server::start());
    let mut client = master.connect();
    client.int("FAIRLOCK.ACQUIRE k a SESSION");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    follow(&replica, &master);
    let mut reader = replica.connect();
    reader.wait_for("DBSIZE", &client.run("DBSIZE"));
    reader.assert_reply("FAIRLOCK.LOCKS", "[]");
}

/// The listing, and for how long the only lock in it is held.
fn listed(client: &mut Client) -> (String, i64) {
    let list = client.run("FAIRLOCK.LOCKS");
    let held = list.split("held: ").nth(1).expect("held");
    let held = held.trim_end_matches("}]").parse().expect("a number");
    (list, held)
}

#[test]
fn it_says_what_info_says_and_for_how_long_the_lock_is_held_if_that_is_known() {
    let server = Server::start();
    let mut client = server.connect_resp3();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000 SESSION");
    wait_until("held for a while", || listed(&mut client).1 > 20);
    let (list, _) = listed(&mut client);
    let (start, rest) = list.split_once("lease: 59").expect("a lease");
    assert_eq!(start, "[{name: k, owner: a, holds: 1, ");
    let expected = format!(
        ", token: {token}, session: true, waiting: 0, next: (nil), holders: 1, limit: 1, held: "
    );
    assert!(rest.contains(&expected), "{list}");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let (list, _) = listed(&mut client);
    assert!(list.contains(", waiting: 1, next: b, "), "{list}");
    // A script takes it.
    client.run_many(["FAIRLOCK.BREAK k", "HSET k u:42 2"]);
    let (list, held) = listed(&mut client);
    assert_eq!(held, -1);
    assert!(list.contains("holds: 2, "), "{list}");
    assert!(list.contains("token: (nil), "), "{list}");
}

#[test]
fn a_user_is_shown_only_what_the_user_may_read() {
    let (server, mut client) = Server::connected();
    for lock in ["mine", "yours", "written"] {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} a SESSION"));
    }
    client.run("ACL SETUSER ann on >secret +@all ~mine %W~written");
    let mut ann = server.connect();
    ann.run("AUTH ann secret");
    let command = "FAIRLOCK.LOCKS";
    for reply in [ann.run(command), ann.at_once(&[command])] {
        assert_eq!(names_of(&reply), ["mine"], "{reply}");
    }
    let script = b"return redis.call('FAIRLOCK.LOCKS')";
    let refused = ann.raw(&[b"EVAL", script, b"0"]).expect_err("refused");
    assert!(refused.contains("not allowed from script"), "{refused}");
    client.run("ACL SETUSER ann -fairlock.locks");
    ann.assert_error(command, "NOPERM");
}

/// Opens a session on each of many locks: `l0000` and so on.
fn bind_many(client: &mut Client, number: usize) {
    client.run_many((0..number).map(|n| format!("FAIRLOCK.ACQUIRE l{n:04} a SESSION")));
}

/// The names of all locks, reply by reply: none has more than `most`.
fn pages(client: &mut Client, command: &str, most: usize) -> Vec<String> {
    let (mut all, mut rest) = (Vec::new(), String::new());
    loop {
        let reply = client.run(&format!("{command}{rest}"));
        let some = names_of(&reply);
        assert!(some.len() <= most, "{} locks in a reply", some.len());
        all.extend(some);
        match cursor(&reply) {
            Some(cursor) => rest = format!(" AFTER {cursor}"),
            None => return all,
        }
    }
}

/// The cursor at the end of a listing that was cut short.
fn cursor(reply: &str) -> Option<&str> {
    let (_, cursor) = reply.split_once("[more, ")?;
    cursor.strip_suffix("]]")
}

#[test]
fn a_listing_that_is_cut_short_says_so_and_goes_on() {
    let (server, mut client) = Server::connected();
    bind_many(&mut client, 1_205);
    let reply = client.run("FAIRLOCK.LOCKS");
    assert_eq!(names_of(&reply).len(), 100);
    assert!(cursor(&reply).is_some(), "{reply}");
    // A request for any number does not block the server for long.
    let expected: Vec<String> = (0..1_205).map(|n| format!("l{n:04}")).collect();
    for command in ["FAIRLOCK.LOCKS COUNT 9999", "FAIRLOCK.LOCKS COUNT 7"] {
        assert_eq!(sorted(pages(&mut client, command, 1_000)), expected);
    }
    assert_eq!(
        pages(&mut client, "FAIRLOCK.LOCKS AFTER 0 COUNT 1", 1)[0],
        pages(&mut client, "FAIRLOCK.LOCKS COUNT 1", 1)[0]
    );
    client.assert_reply("FAIRLOCK.LOCKS COUNT 0", "[]");
    let mut resp3 = server.connect_resp3();
    let reply = resp3.run("FAIRLOCK.LOCKS COUNT 1");
    let (_, cursor) = reply.split_once(", {more: ").expect("a cursor");
    assert!(
        cursor.trim_end_matches("}]").parse::<u64>().is_ok(),
        "{reply}"
    );
}

#[test]
fn a_listing_is_cut_short_where_there_are_many_holders_to_read() {
    let (_server, mut client) = Server::connected();
    client.run_many((0..11 * 100).map(|n| {
        let (lock, owner) = (n / 100, n % 100);
        format!("FAIRLOCK.ACQUIRE l{lock:02} h{owner} SHARED LEASE 600000")
    }));
    let expected: Vec<String> = (0..11).map(|n| format!("l{n:02}")).collect();
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), expected[..10]);
    assert_eq!(pages(&mut client, "FAIRLOCK.LOCKS", 10), expected);
}

/// Locks come and go between the replies, and waiters of all of them.
#[test]
fn a_lock_that_is_there_all_the_time_is_listed_once() {
    const STAY: usize = 120;
    let (_server, mut client) = Server::connected();
    for lock in 0..STAY {
        client.int(&format!("FAIRLOCK.ACQUIRE stays{lock:03} a SESSION"));
        client.int(&format!("FAIRLOCK.ACQUIRE goes{lock:03} a SESSION"));
    }
    let (mut found, mut rest) = (Vec::new(), String::new());
    for round in 0.. {
        let reply = client.run(&format!("FAIRLOCK.LOCKS COUNT 10{rest}"));
        found.extend(names_of(&reply));
        let Some(cursor) = cursor(&reply) else { break };
        rest = format!(" AFTER {cursor}");
        let lock = round * 7 % STAY;
        client.run(&format!("FAIRLOCK.RELEASE goes{lock:03} a"));
        client.run(&format!("FAIRLOCK.ACQUIRE comes{round} a SESSION"));
        client.run(&format!("FAIRLOCK.ACQUIRE stays{lock:03} w{round} ENQUEUE"));
        client.run(&format!("FAIRLOCK.CANCEL stays{:03} w{round}", lock / 2));
        // It ends, for a lock that comes is listed once as well.
        assert!(round < 2 * STAY, "{} found", found.len());
    }
    found.retain(|name| name.starts_with("stays"));
    let expected: Vec<String> = (0..STAY).map(|lock| format!("stays{lock:03}")).collect();
    assert_eq!(sorted(found), expected);
}

#[test]
fn a_search_for_what_a_user_may_read_goes_on_behind_what_the_user_may_not() {
    let (server, mut client) = Server::connected();
    bind_many(&mut client, 4_100);
    client.int("FAIRLOCK.ACQUIRE mine a SESSION");
    client.run("ACL SETUSER ann on >secret +@all ~mine ~l0000");
    let mut ann = server.connect();
    ann.run("AUTH ann secret");
    for command in ["FAIRLOCK.LOCKS", "FAIRLOCK.LOCKS COUNT 1"] {
        assert_eq!(pages(&mut ann, command, 2), ["l0000", "mine"]);
    }
}
