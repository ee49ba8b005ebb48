//! Error messages for an operator.

use fairlock_testing::{Server, follow};

use crate::program;

const EXEC: &str = "exec k -- true";
const ALL: [&str; 5] = [EXEC, "top --once", "locks", "info k", "break k"];

#[test]
fn every_command_says_what_is_wrong_with_the_server() {
    let (plain, closed) = (Server::without_module(&[]), Server::start());
    closed.connect().run("CONFIG SET requirepass secret");
    for (port, fault, advice) in [
        // A port that no other test's server can get.
        (1, "cannot reach the server at 127.0.0.1:", "FAIRLOCK_URL"),
        (
            plain.port,
            "does not have the fairlock module",
            "loadmodule",
        ),
        (closed.port, "wants a password", "//:PASSWORD@127.0.0.1:"),
    ] {
        for arguments in ALL {
            let ended = program::ended(port, arguments);
            ended.failed(69, fault);
            ended.failed(69, advice);
        }
    }
    program::start_as(":secret", closed.port, EXEC).end().said();
    let ended = program::start_as(":wrong", closed.port, EXEC).end();
    ended.failed(69, "wants a password, or another one");
    assert!(!ended.errors.contains("wrong@"), "{ended:?}");
}

#[test]
fn a_cluster_without_slots_is_none_yet() {
    let server = Server::with(&["--cluster-enabled", "yes"]);
    for arguments in ["top --once", "locks"] {
        program::ended(server.port, arguments).failed(69, "serves no slots");
    }
}

#[test]
fn a_user_needs_little() {
    let (server, mut client) = Server::connected();
    let commands = "+fairlock.info +fairlock.holders +fairlock.acquire +fairlock.release";
    client.run(&format!("ACL SETUSER ann on >secret ~k {commands}"));
    let ann = |arguments: &str| program::start_as("ann:secret", server.port, arguments);
    for how in ["--limit=1", "--shared"] {
        ann(&format!("exec k {how} -- true")).end().said();
    }
    client.int("FAIRLOCK.ACQUIRE k holder LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE other holder LEASE 600000");
    client.run("ACL SETUSER ben on >secret ~k +info +fairlock.locks");
    let ben = |arguments: &str| program::start_as("ben:secret", server.port, arguments).end();
    assert_eq!(ben("locks --busy").said(), "");
    client.run("ACL SETUSER ben +scan");
    ben("locks").failed(69, "fairlock.info");
    client.run("ACL SETUSER ben +fairlock.info");
    let locks = ben("locks").said();
    assert!(locks.starts_with("k holder=holder ") && locks.lines().count() == 1);
    ben("break k").failed(69, "ACL");
    // Without the queue its place is not known.
    let waits = ann(EXEC);
    waits.wait_for_error("waiting for the lock k: holder holds it, 1 wait\n");
    client.int("FAIRLOCK.RELEASE k holder");
    waits.end().failed(0, "");
    client.run("ACL SETUSER ann -fairlock.holders");
    ann(EXEC).end().failed(69, "fairlock.holders");
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
    for (arguments, text) in [
        ("top --once --interval 10ms", "is a replica"),
        ("locks", "k holder=ann held=? "),
        ("info k", "holder   ann "),
    ] {
        let out = program::ended(replica.port, arguments).said();
        assert!(out.contains(text), "{out}");
    }
}
