//! The script by which `redis_exporter` gets the fields of `INFO fairlock` (`examples/metrics/redis_exporter.lua`).

use std::collections::BTreeMap;

use fairlock_testing::{Client, Server, paths};
use redis::Value;

/// What `redis_exporter` makes of the reply: names and numbers by turns.
fn figures(client: &mut Client, command: &[u8]) -> BTreeMap<String, u64> {
    let script = std::fs::read(paths::root().join("examples/metrics/redis_exporter.lua"));
    let script = script.expect("the script");
    // It sends 0 as an argument, too.
    let reply = client.raw(&[command, &script, b"0", b"0"]);
    let Ok(Value::Array(words)) = reply else {
        panic!("{reply:?}");
    };
    let words: Vec<String> = words.iter().map(fairlock_testing::show).collect();
    let pairs = words.chunks(2);
    pairs
        .map(|pair| (pair[0].clone(), pair[1].parse().expect("a number")))
        .collect()
}

#[test]
fn the_script_for_redis_exporter_has_every_number_of_info() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k me LEASE 600000");
    let info = client.run("INFO fairlock");
    let numbers: BTreeMap<String, u64> = info
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter_map(|(name, number)| Some((name.to_owned(), number.parse().ok()?)))
        .collect();
    assert!(numbers.len() > 60, "{numbers:?}");
    assert_eq!(numbers["fairlock_acquisitions_immediate"], 1);
    assert_eq!(figures(&mut client, b"EVAL"), numbers);
    // As with --lua-script-read-only, and the permissions that the page names.
    client.run("ACL SETUSER exporter on nopass resetkeys resetchannels -@all +info +eval_ro");
    client.run("AUTH exporter any");
    assert_eq!(figures(&mut client, b"EVAL_RO"), numbers);
}
