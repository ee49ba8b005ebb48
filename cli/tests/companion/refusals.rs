//! Error messages for an operator.

use fairlock_testing::{Server, follow};

use crate::program;

const EXEC: &str = "exec k -- true";
const ALL: [&str; 6] = [EXEC, "top --once", "metrics", "locks", "info k", "break k"];

#[test]
fn every_command_says_what_is_wrong_with_the_server() {
    let (plain, closed) = (Server::without_module(&[]), Server::start());
    closed.connect().run("CONFIG SET requirepass secret");
    let no_server = ["cannot reach the server at 127.0.0.1:", "FAIRLOCK_URL"];
    let no_module = ["does not have the fairlock module", "loadmodule"];
    let no_password = ["wants a password", "redis://:PASSWORD@127.0.0.1:"];
    for (port, texts) in [
        // A port that no other test's server can get.
        (1, no_server),
        (plain.port, no_module),
        (closed.port, no_password),
    ] {
        for arguments in ALL {
            let ended = program::ended(port, arguments);
            for text in texts {
                ended.failed(69, text);
            }
        }
    }
    program::start_as(":secret", closed.port, EXEC).end().said();
    let ended = program::start_as(":wrong", closed.port, EXEC).end();
    ended.failed(69, "wants a password, or another one");
    assert!(!ended.errors.contains("wrong@"), "{ended:?}");
}

#[test]
fn what_is_not_a_lock_is_left_alone() {
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
}

#[test]
fn a_user_needs_little() {
    let (server, mut client) = Server::connected();
    let commands = "+fairlock.info +fairlock.holders +fairlock.acquire +fairlock.release";
    client.run(&format!("ACL SETUSER ann on >secret ~k {commands}"));
    client.run("ACL SETUSER ben on >secret +info");
    let starts = |user: &str, arguments: &str| program::start_as(user, server.port, arguments);
    let (ann, ben) = ("ann:secret", "ben:secret");
    for how in ["--limit=1", "--shared"] {
        starts(ann, &format!("exec k {how} -- true")).end().said();
    }
    starts(ben, "metrics").end().said();
    client.int("FAIRLOCK.ACQUIRE k holder LEASE 600000");
    client.run("ACL SETUSER ben ~* +@all -@admin -@dangerous +info");
    starts(ben, "break k").end().failed(69, "ACL");
    let locks = starts(ben, "locks").end().said();
    assert!(locks.starts_with("k holder=holder "), "{locks}");
    client.int("FAIRLOCK.ACQUIRE other holder LEASE 600000");
    client.run("ACL SETUSER cid on >secret ~k +info +fairlock.locks");
    let cid = |arguments: &str| starts("cid:secret", arguments).end();
    assert_eq!(cid("locks --busy").said(), "");
    client.run("ACL SETUSER cid +scan");
    cid("locks").failed(69, "fairlock.info");
    client.run("ACL SETUSER cid +fairlock.info");
    let locks = cid("locks").said();
    assert!(locks.starts_with("k holder=holder ") && locks.lines().count() == 1);
    // Without the queue its place is not known.
    let waits = starts(ann, EXEC);
    waits.wait_for_error("waiting for the lock k: holder holds it, 1 wait\n");
    client.int("FAIRLOCK.RELEASE k holder");
    waits.end().failed(0, "");
    client.run("ACL SETUSER ann -fairlock.holders");
    starts(ann, EXEC).end().failed(69, "fairlock.holders");
}

#[test]
fn a_replica_shows_what_is_held_and_gives_no_locks() {
    let (master, replica) = (Server::start(), Server::start());
    master.connect().int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    // Before it has the master's data it may refuse everything, with another error.
    follow(&replica, &master);
    for arguments in [EXEC, "break k"] {
        program::ended(replica.port, arguments).failed(69, "is a replica");
    }
    let node = format!("node=\"127.0.0.1:{}\"", replica.port);
    for (arguments, text) in [
        ("top --once --interval 10ms", "is a replica"),
        ("locks", "k holder=ann held=? "),
        ("info k", "holder   ann "),
        ("metrics", &format!("fairlock_replica{{{node}}} 1\n")),
    ] {
        let out = program::ended(replica.port, arguments).said();
        assert!(out.contains(text), "{out}");
    }
}
