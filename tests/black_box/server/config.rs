//! Options.

use fairlock_testing::Server;

#[test]
fn every_option_is_documented_in_the_example_with_its_default() {
    let server = Server::start();
    let words = server.connect().list("CONFIG GET fairlock.*");
    let example = include_str!("../../../redis.conf.example");
    for pair in words.chunks(2) {
        let mut line = format!("# {} {}", pair[0], pair[1]);
        // Redis 7.0 does not tell a filter its client.
        if pair[0] == "fairlock.intercept-eval" && !server.knows_7_2() {
            assert_eq!(pair[1], "no");
            line = line.replace(" no", " yes");
        }
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

/// What an option can be set to, what not, and why.
type Values = [&'static str; 3];

const DURATION: Values = [
    "1 4503599627370496",
    "0 -1 4503599627370497 9223372036854775807",
    "between 1 and",
];
const WAITERS: Values = ["1 10000000", "0 -1 10000001", "between 1 and"];
const COMMANDS: Values = ["publish spublish both auto", "never", "must be one of"];

#[test]
fn every_option_has_its_values() {
    let (_server, mut client) = Server::connected();
    for (name, [good, bad, why]) in [
        ("lease", DURATION),
        ("patience", DURATION),
        ("turn", DURATION),
        ("max-waiters", WAITERS),
        ("pubsub", COMMANDS),
    ] {
        let is = format!("CONFIG GET fairlock.{name}");
        for value in good.split(' ') {
            client.assert_reply(&format!("CONFIG SET fairlock.{name} {value}"), "OK");
            client.assert_reply(&is, &format!("[fairlock.{name}, {value}]"));
        }
        let before = client.run(&is);
        for value in bad.split(' ') {
            client.assert_has(&format!("CONFIG SET fairlock.{name} {value}"), why);
            client.assert_reply(&is, &before);
        }
    }
}

#[test]
fn options_come_as_module_arguments() {
    let plain = Server::start();
    let path = plain.module_path();
    let options = ["lease", "4321", "fairlock.turn", "99", "pubsub", "both"];
    let options = [&["--loadmodule", path.as_str()], &options[..]].concat();
    let server = Server::without_module(&options);
    let all = server.connect().run("CONFIG GET fairlock.*");
    for option in ["lease, 4321", "turn, 99", "pubsub, both"] {
        assert!(all.contains(&format!("fairlock.{option}")), "{all}");
    }
}

#[test]
fn unusable_module_arguments_are_refused_and_logged_as_they_are() {
    let path = Server::start().module_path();
    let server = Server::without_module(&["--enable-module-command", "yes"]);
    let mut client = server.connect();
    for bad in ["lease", "lease 0", "lease x", "pubsub x", "%s%n%d 1"] {
        client.assert_error(&format!("MODULE LOAD {path} {bad}"), "ERR");
    }
    let words: [&[u8]; 5] = [b"MODULE", b"LOAD", path.as_bytes(), b"a\0b\xff", b"1"];
    assert!(client.raw(&words).is_err());
    for option in ["'%s%n%d'", "'a\\0b"] {
        let said = format!("fairlock: there is no option {option}");
        assert!(server.log().contains(&said), "{said}");
    }
    client.assert_reply(&format!("MODULE LOAD {path} lease 1000"), "OK");
    client.assert_reply("CONFIG GET fairlock.lease", "[fairlock.lease, 1000]");
}
