//! Options.

use fairlock_testing::Server;

#[test]
fn every_option_is_documented_in_the_example_with_its_default() {
    let server = Server::start();
    let all = server.connect().run("CONFIG GET fairlock.*");
    let words: Vec<&str> = all.trim_matches(['[', ']']).split(", ").collect();
    let example = include_str!("../../../redis.conf.example");
    for pair in words.chunks(2) {
        let shown = match pair {
            // Redis 7.0 does not tell a filter its client.
            ["fairlock.intercept-eval", value] => {
                let default = if server.knows_7_2() { "yes" } else { "no" };
                assert_eq!(*value, default);
                "yes"
            }
            _ => pair[1],
        };
        let line = format!("# {} {shown}", pair[0]);
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
    let (_server, mut client) = Server::connected();
    client.assert_reply("CONFIG SET fairlock.lease 5000", "OK");
    client.int("FAIRLOCK.ACQUIRE k a");
    assert!(client.int("PTTL k") <= 5_000);
    client.assert_error("CONFIG SET fairlock.lease x", "ERR");
    client.assert_reply("CONFIG GET fairlock.lease", "[fairlock.lease, 5000]");
}

#[test]
fn every_number_has_its_range() {
    let (_server, mut client) = Server::connected();
    let longest = i64::pow(2, 52);
    for (name, max) in [
        ("lease", longest),
        ("patience", longest),
        ("turn", longest),
        ("max-waiters", 10_000_000),
    ] {
        let name = format!("fairlock.{name}");
        for good in [1, max] {
            client.assert_reply(&format!("CONFIG SET {name} {good}"), "OK");
            let shown = client.run(&format!("CONFIG GET {name}"));
            assert_eq!(shown, format!("[{name}, {good}]"));
        }
        for bad in [0, -1, max + 1, i64::MAX] {
            client.assert_has(&format!("CONFIG SET {name} {bad}"), "between 1 and");
            let shown = client.run(&format!("CONFIG GET {name}"));
            assert_eq!(shown, format!("[{name}, {max}]"));
        }
    }
}

#[test]
fn pubsub_is_one_of_four_words() {
    let (_server, mut client) = Server::connected();
    for word in ["publish", "spublish", "both", "auto"] {
        client.assert_reply(&format!("CONFIG SET fairlock.pubsub {word}"), "OK");
        let shown = client.run("CONFIG GET fairlock.pubsub");
        assert_eq!(shown, format!("[fairlock.pubsub, {word}]"));
    }
    client.assert_has("CONFIG SET fairlock.pubsub never", "must be one of");
    let shown = client.run("CONFIG GET fairlock.pubsub");
    assert_eq!(shown, "[fairlock.pubsub, auto]");
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
fn unusable_module_arguments_are_refused() {
    let path = Server::start().module_path();
    let server = Server::without_module(&["--enable-module-command", "yes"]);
    let mut client = server.connect();
    for bad in ["lease", "lease 0", "lease x", "nonsense 1", "pubsub x"] {
        client.assert_error(&format!("MODULE LOAD {path} {bad}"), "ERR");
    }
    client.assert_reply(&format!("MODULE LOAD {path} lease 1000"), "OK");
    client.assert_reply("CONFIG GET fairlock.lease", "[fairlock.lease, 1000]");
    assert!(
        server
            .log()
            .contains("fairlock: there is no option 'nonsense'")
    );
}
