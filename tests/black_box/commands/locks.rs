//! `FAIRLOCK.LOCKS`.

use fairlock_testing::{Client, Server, wait_until};

/// The names of the locks that a client is shown, in order.
pub fn names(client: &mut Client, command: &str) -> Vec<String> {
    names_of(&client.run(command))
}

/// The names of the locks in a reply.
pub fn names_of(reply: &str) -> Vec<String> {
    let locks = reply.split("name, ").skip(1);
    locks
        .filter_map(|lock| lock.split(',').next())
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn it_lists_locks_with_waiters_or_a_session_the_busiest_first() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.run("FAIRLOCK.LOCKS"), "[]");
    for (lock, waiters) in [("one", 1), ("three", 3), ("also-one", 1)] {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} a"));
        for waiter in 0..waiters {
            client.run(&format!("FAIRLOCK.ACQUIRE {lock} w{waiter} ENQUEUE"));
        }
    }
    client.int("FAIRLOCK.ACQUIRE bound a SESSION");
    client.int("FAIRLOCK.ACQUIRE alone a");
    let all = ["three", "also-one", "one", "bound"];
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), all);
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS COUNT -1"), all);
    assert_eq!(names(&mut client, "fairlock.locks count 2"), all[..2]);
    assert_eq!(client.run("FAIRLOCK.LOCKS COUNT 0"), "[]");
}

/// More locks than are put into their order at once.
#[test]
fn many_locks_keep_their_order_while_waiters_come_and_go() {
    const LOCKS: usize = 150;
    let server = Server::start();
    let mut client = server.connect();
    let name = |lock: usize| format!("lock{lock:03}");
    let mut waiting = vec![1; LOCKS];
    for lock in 0..LOCKS {
        client.int(&format!("FAIRLOCK.ACQUIRE {} a LEASE 600000", name(lock)));
        client.run(&format!("FAIRLOCK.ACQUIRE {} w0 ENQUEUE", name(lock)));
    }
    for round in 1..4 {
        for lock in (0..LOCKS).filter(|lock| lock % (round + 1) == 0) {
            // Each lock loses its first waiter in one of the rounds at most.
            if lock % 3 == round % 3 {
                waiting[lock] -= 1;
                client.run(&format!("FAIRLOCK.CANCEL {} w0", name(lock)));
            } else {
                waiting[lock] += 1;
                client.run(&format!("FAIRLOCK.ACQUIRE {} w{round} ENQUEUE", name(lock)));
            }
        }
        let mut order: Vec<usize> = (0..LOCKS).filter(|lock| waiting[*lock] > 0).collect();
        order.sort_by_key(|lock| (std::cmp::Reverse(waiting[*lock]), *lock));
        let order: Vec<String> = order.into_iter().map(name).collect();
        assert_eq!(pages(&mut client, "FAIRLOCK.LOCKS COUNT -1", LOCKS), order);
    }
}

#[test]
fn it_says_what_info_says_and_for_how_long_the_lock_is_held() {
    let server = Server::start();
    let mut client = server.connect_resp3();
    client.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    wait_until("held for a while", || {
        let list = client.run("FAIRLOCK.LOCKS");
        let held = list.split("held: ").nth(1).expect("held");
        let held: i64 = held.trim_end_matches("}]").parse().expect("a number");
        held > 20
    });
    let list = client.run("FAIRLOCK.LOCKS");
    assert!(
        list.starts_with("[{name: k, owner: a, holds: 1, lease: "),
        "{list}"
    );
    assert!(
        list.contains(", session: true, waiting: 1, next: b, holders: 1, limit: 1, held: "),
        "{list}"
    );
}

#[test]
fn a_lock_that_others_have_taken_is_held_for_nobody_knows_how_long() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("HSET k a 1");
    client.run("PEXPIRE k 60000");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let list = client.run("FAIRLOCK.LOCKS");
    assert!(list.contains("owner, a, "), "{list}");
    assert!(
        list.ends_with("next, b, holders, 1, limit, 1, held, -1]]"),
        "{list}"
    );
}

#[test]
fn a_lock_is_listed_for_as_long_as_somebody_waits_or_is_bound() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), ["k"]);
    client.run("FAIRLOCK.CANCEL k b");
    assert_eq!(client.run("FAIRLOCK.LOCKS"), "[]");
    let mut bound = server.connect();
    bound.int("FAIRLOCK.ACQUIRE s a SESSION");
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), ["s"]);
    drop(bound);
    wait_until("the session is over", || {
        client.run("FAIRLOCK.LOCKS") == "[]"
    });
}

#[test]
fn each_database_has_its_own() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a SESSION");
    client.run("SELECT 1");
    assert_eq!(client.run("FAIRLOCK.LOCKS"), "[]");
    client.run("SELECT 0");
    client.run("SWAPDB 0 1");
    assert_eq!(client.run("FAIRLOCK.LOCKS"), "[]");
    client.run("SELECT 1");
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), ["k"]);
}

#[test]
fn a_lock_of_which_a_key_holds_something_else_is_not_listed() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE good a SESSION");
    client.int("FAIRLOCK.ACQUIRE bad a SESSION");
    client.run("FAIRLOCK.ACQUIRE bad b ENQUEUE");
    client.run("SET redisson_lock_queue:{bad} x");
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), ["good"]);
}

#[test]
fn a_user_is_shown_only_what_the_user_may_read() {
    let server = Server::start();
    let mut client = server.connect();
    for lock in ["mine", "yours", "written"] {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} a SESSION"));
    }
    client.run("ACL SETUSER ann on >secret +@all ~mine %W~written");
    client.run("ACL SETUSER bob on >secret +@all -fairlock.locks ~*");
    let mut ann = server.connect();
    ann.run("AUTH ann secret");
    assert_eq!(names(&mut ann, "FAIRLOCK.LOCKS"), ["mine"]);
    ann.run("MULTI");
    ann.run("FAIRLOCK.LOCKS");
    assert_eq!(names(&mut ann, "EXEC"), ["mine"]);
    let script = b"return redis.call('FAIRLOCK.LOCKS')";
    let in_script = ann.raw(&[b"EVAL", script, b"0"]);
    let refused = in_script.expect_err("refused");
    assert!(refused.contains("not allowed from script"), "{refused}");
    let mut bob = server.connect();
    bob.run("AUTH bob secret");
    let refused = bob.run("FAIRLOCK.LOCKS");
    assert!(refused.starts_with("(error) NOPERM"), "{refused}");
}

#[test]
fn what_it_cannot_read_is_refused() {
    let server = Server::start();
    let mut client = server.connect();
    for (command, error) in [
        (
            "FAIRLOCK.LOCKS x",
            "(error) ERR syntax error: unknown option, expected ALL, COUNT or AFTER",
        ),
        (
            "FAIRLOCK.LOCKS COUNT",
            "(error) ERR syntax error: COUNT needs a value",
        ),
        (
            "FAIRLOCK.LOCKS COUNT 1 COUNT 2",
            "(error) ERR syntax error: COUNT is given twice",
        ),
        (
            "FAIRLOCK.LOCKS COUNT -2",
            "(error) ERR COUNT is not a whole number from 0 to 9223372036854775807, or -1 for all",
        ),
        (
            "FAIRLOCK.LOCKS AFTER x",
            "(error) ERR AFTER is not a cursor that FAIRLOCK.LOCKS has replied of late: begin without it",
        ),
        (
            "FAIRLOCK.LOCKS AFTER",
            "(error) ERR syntax error: AFTER needs a value",
        ),
        (
            "FAIRLOCK.LOCKS COUNT x",
            "(error) ERR COUNT is not a whole number from 0 to 9223372036854775807, or -1 for all",
        ),
    ] {
        assert_eq!(client.run(command), error, "{command}");
    }
}

#[test]
fn a_replica_knows_of_no_waiters() {
    let master = Server::start();
    let replica = Server::start();
    let mut client = master.connect();
    client.int("FAIRLOCK.ACQUIRE k a SESSION");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let mut reader = replica.connect();
    reader.run(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    wait_until("the replica has the lock", || reader.run("EXISTS k") == "1");
    assert_eq!(reader.run("FAIRLOCK.LOCKS"), "[]");
}

/// A session on each of so many locks, `l0000` and so on.
fn bind_many(client: &mut Client, number: usize) {
    client.run_many((0..number).map(|n| format!("FAIRLOCK.ACQUIRE l{n:04} a SESSION")));
}

/// The names of all locks, reply by reply: none has more than `most`, and a slow server may give fewer.
pub fn pages(client: &mut Client, command: &str, most: usize) -> Vec<String> {
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
pub fn cursor(reply: &str) -> Option<&str> {
    let (_, cursor) = reply.split_once("[more, ")?;
    cursor.strip_suffix("]]")
}

#[test]
fn a_listing_that_is_cut_short_says_so_and_goes_on() {
    let server = Server::start();
    let mut client = server.connect();
    bind_many(&mut client, 1_205);
    client.run("FAIRLOCK.ACQUIRE l0700 b ENQUEUE");
    // By default, and with a count; the busiest comes first.
    let reply = client.run("FAIRLOCK.LOCKS");
    assert_eq!(reply.matches("name, l").count(), 100);
    assert_eq!(cursor(&reply), Some("0:l0098"));
    assert_eq!(
        cursor(&client.run("FAIRLOCK.LOCKS COUNT 1")),
        Some("1:l0700")
    );
    let pair = names(&mut client, "FAIRLOCK.LOCKS COUNT 2 AFTER 1:l0700");
    assert_eq!(pair, ["l0000", "l0001"]);
    // However many are asked for, the server is not held up for long.
    let all = pages(&mut client, "FAIRLOCK.LOCKS COUNT 9999", 1_000);
    let mut expected: Vec<String> = (0..1_205).map(|n| format!("l{n:04}")).collect();
    let busiest = expected.remove(700);
    expected.insert(0, busiest);
    assert_eq!(all, expected);
    // Exactly as many as there are: nothing is left out.
    let reply = client.run("FAIRLOCK.LOCKS COUNT 95 AFTER 0:l1109");
    assert_eq!(reply.matches("name, l").count(), 95);
    assert_eq!(cursor(&reply), None);
    assert_eq!(client.run("FAIRLOCK.LOCKS COUNT 0"), "[]");
    let mut resp3 = server.connect_resp3();
    let reply = resp3.run("FAIRLOCK.LOCKS COUNT 1");
    assert!(reply.ends_with(", {more: 1:l0700}]"), "{reply}");
}

#[test]
fn the_order_follows_waiters_that_come_and_go() {
    let server = Server::start();
    let mut client = server.connect();
    for (lock, waiters) in [("a", 1), ("b", 3), ("c", 2)] {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} holder LEASE 600000"));
        for n in 0..waiters {
            client.run(&format!("FAIRLOCK.ACQUIRE {lock} w{n} ENQUEUE"));
        }
    }
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), ["b", "c", "a"]);
    client.run("FAIRLOCK.CANCEL b w0");
    client.run("FAIRLOCK.CANCEL b w1");
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), ["c", "a", "b"]);
    client.run("FAIRLOCK.CANCEL b w2");
    assert_eq!(names(&mut client, "FAIRLOCK.LOCKS"), ["c", "a"]);
    client.run("DEL redisson_lock_queue:{c} redisson_lock_timeout:{c}");
    wait_until("the polling waiters are gone or back", || {
        let order = names(&mut client, "FAIRLOCK.LOCKS");
        order == ["c", "a"] || order == ["a"]
    });
}

#[test]
fn a_search_for_what_a_user_may_read_is_cut_short_without_a_word_of_the_rest() {
    let server = Server::start();
    let mut client = server.connect();
    bind_many(&mut client, 4_100);
    client.int("FAIRLOCK.ACQUIRE mine a SESSION");
    client.run("ACL SETUSER ann on >secret +@all ~mine ~l0000");
    let mut ann = server.connect();
    ann.run("AUTH ann secret");
    let reply = ann.run("FAIRLOCK.LOCKS");
    assert_eq!(reply.matches("name, ").count(), 1, "{reply}");
    let place = cursor(&reply).expect("a cursor");
    assert!(place.starts_with('*') && place.len() == 37, "{place}");
    assert_eq!(pages(&mut ann, "FAIRLOCK.LOCKS", 1), ["l0000", "mine"]);
}
