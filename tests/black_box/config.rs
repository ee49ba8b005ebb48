//! Options.

use crate::server::Server;

#[test]
fn every_option_is_documented_in_the_example_with_its_default() {
    let server = Server::start();
    let all = server.connect().run("CONFIG GET fairlock.*");
    let words: Vec<&str> = all.trim_matches(['[', ']']).split(", ").collect();
    let example = include_str!("../../redis.conf.example");
    for pair in words.chunks(2) {
        let line = format!("# {} {}", pair[0], pair[1]);
        assert!(
            example.lines().any(|other| other == line),
            "no line '{line}'"
        );
    }
    let documented = example
        .lines()
        .filter(|line| line.starts_with("# fairlock."))
        .count();
    assert_eq!(documented, words.len() / 2);
}

#[test]
fn options_change_while_the_server_runs() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.run("CONFIG SET fairlock.lease 5000"), "OK");
    client.int("FAIRLOCK.ACQUIRE k a");
    assert!(client.int("PTTL k") <= 5_000);
    for bad in [
        "fairlock.lease 0",
        "fairlock.turn -1",
        "fairlock.patience x",
        "fairlock.max-waiters 0",
    ] {
        let error = client.run(&format!("CONFIG SET {bad}"));
        assert!(error.starts_with("(error) ERR "), "{bad}: {error}");
    }
    assert_eq!(
        client.run("CONFIG GET fairlock.lease"),
        "[fairlock.lease, 5000]"
    );
}

#[test]
fn options_come_as_module_arguments() {
    let plain = Server::start();
    let list = plain.connect().run("MODULE LIST");
    let path = list
        .split("path, ")
        .nth(1)
        .expect("a path")
        .split(',')
        .next()
        .expect("a path");
    let server =
        Server::without_module(&["--loadmodule", path, "lease", "4321", "fairlock.turn", "99"]);
    let mut client = server.connect();
    assert_eq!(
        client.run("CONFIG GET fairlock.lease"),
        "[fairlock.lease, 4321]"
    );
    assert_eq!(
        client.run("CONFIG GET fairlock.turn"),
        "[fairlock.turn, 99]"
    );
}

#[test]
fn unusable_module_arguments_are_refused() {
    let plain = Server::start();
    let list = plain.connect().run("MODULE LIST");
    let path = list
        .split("path, ")
        .nth(1)
        .expect("a path")
        .split(',')
        .next()
        .expect("a path");
    let server = Server::without_module(&["--enable-module-command", "yes"]);
    let mut client = server.connect();
    for bad in ["lease", "lease 0", "lease x", "nonsense 1"] {
        let error = client.run(&format!("MODULE LOAD {path} {bad}"));
        assert!(error.starts_with("(error) ERR "), "{bad}: {error}");
    }
    assert_eq!(client.run(&format!("MODULE LOAD {path} lease 1000")), "OK");
    assert_eq!(
        client.run("CONFIG GET fairlock.lease"),
        "[fairlock.lease, 1000]"
    );
    assert!(
        server
            .log()
            .contains("fairlock: there is no option 'nonsense'")
    );
}
