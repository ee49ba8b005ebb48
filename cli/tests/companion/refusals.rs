//! Error messages for an operator.

use fairlock_testing::{Server, follow};

use crate::program::Program;

const ALL: [&[&str]; 6] = [
    &["exec", "k", "--", "true"],
    &["top", "--once"],
    &["metrics"],
    &["locks"],
    &["info", "k"],
    &["break", "k"],
];

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
        for args in ALL {
            let ended = Program::ended(port, args);
            for text in texts {
                ended.failed(69, text);
            }
        }
    }
    Program::ended_as(":secret", &closed, ALL[0]).said();
    let ended = Program::ended_as(":wrong", &closed, ALL[0]);
    ended.failed(69, "wants a password, or another one");
    assert!(!ended.errors.contains("wrong@"), "{ended:?}");
}

#[test]
fn a_user_needs_little() {
    let (server, mut client) = Server::connected();
    let commands = "+fairlock.info +fairlock.holders +fairlock.acquire +fairlock.release";
    client.run(&format!("ACL SETUSER ann on >secret ~k {commands}"));
    for how in ["--limit=1", "--shared"] {
        let exec = ["exec", "k", how, "--", "true"];
        Program::ended_as("ann:secret", &server, &exec).said();
    }
    // Without the queue its place is not known.
    client.int("FAIRLOCK.ACQUIRE k holder LEASE 600000");
    let url = format!("redis://ann:secret@127.0.0.1:{}", server.port);
    let waits = Program::start(1, &["--url", &url, "exec", "k", "--", "true"]);
    waits.wait_for_error("waiting for the lock k: holder holds it, 1 wait\n");
    client.int("FAIRLOCK.RELEASE k holder");
    waits.end().failed(0, "");
    client.run("ACL SETUSER ann -fairlock.holders");
    Program::ended_as("ann:secret", &server, ALL[0]).failed(69, "fairlock.holders");
    client.run("ACL SETUSER ben on >secret +info");
    Program::ended_as("ben:secret", &server, &["metrics"]).said();
    client.int("FAIRLOCK.ACQUIRE k ann");
    client.run("ACL SETUSER ben ~* +@all -@admin -@dangerous +info");
    Program::ended_as("ben:secret", &server, &["break", "k"]).failed(69, "ACL");
    let out = Program::ended_as("ben:secret", &server, &["locks"]).said();
    assert!(out.starts_with("k holder=ann "), "{out}");
}

#[test]
fn the_server_is_a_replica() {
    let (master, replica) = (Server::start(), Server::start());
    master.connect().int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    // Before it has the master's data it may refuse everything, with another error.
    follow(&replica, &master);
    for args in [ALL[0], ALL[5]] {
        Program::ended(replica.port, args).failed(69, "is a replica");
    }
    let metric = format!(
        "fairlock_replica{{node=\"127.0.0.1:{}\"}} 1\n",
        replica.port
    );
    // It shows what is held.
    for (args, text) in [
        (&["top", "--once", "--interval", "10ms"][..], "is a replica"),
        (&["locks"], "k holder=ann held=? "),
        (&["info", "k"], "holder   ann "),
        (&["metrics"], &metric),
    ] {
        let out = Program::ended(replica.port, args).said();
        assert!(out.contains(text), "{out}");
    }
}

#[test]
fn the_command_line_cannot_be_understood() {
    for args in [
        &["exec", "k"][..],
        &["exec", "k", "true"],
        &["exec", "", "--", "true"],
        &["completions", "dos"],
        &["exec", "k", "--wait", "10", "--", "true"],
        &["exec", "k", "--lease", "0", "--", "true"],
        &["exec", "k", "--limit", "0", "--", "true"],
        &["exec", "k", "--limit", "1000001", "--", "true"],
        &["top", "--sort", "age"],
        &["info"],
        &["--url", "http://ann:secret@x", "top"],
        &["metrics", "--listen", "9121"],
        &["metrics", "--listen", ":65536"],
        &[],
    ] {
        let ended = Program::ended(1, args);
        assert_eq!(ended.code, 64, "{args:?}: {ended:?}");
        let is_said = !ended.errors.is_empty() && !ended.errors.contains("secret");
        assert!(is_said, "{args:?}: {ended:?}");
    }
}
