//! The script by which `redis_exporter` gets the fields of `INFO fairlock`, and the alerts and the dashboard that use
//! them (`examples/metrics`).

use std::collections::BTreeMap;

use fairlock_testing::{Client, Server, paths};
use redis::Value;

fn example(name: &str) -> String {
    let file = paths::root().join("examples/metrics").join(name);
    std::fs::read_to_string(file).expect("an example")
}

/// What `redis_exporter` makes of the reply: names and numbers by turns.
fn figures(client: &mut Client) -> BTreeMap<String, u64> {
    let script = example("redis_exporter.lua");
    // It sends 0 as an argument, too.
    let reply = client.raw(&[b"EVAL", script.as_bytes(), b"0", b"0"]);
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
fn the_script_for_redis_exporter_has_every_number_of_info_and_the_examples_use_no_other() {
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
    // With the permissions that the page names.
    client.run("ACL SETUSER exporter on nopass resetkeys resetchannels -@all +info +eval");
    client.run("AUTH exporter any");
    assert_eq!(figures(&mut client), numbers);

    let dashboard = example("grafana-dashboard.json");
    serde_json::from_str::<serde_json::Value>(&dashboard).expect("JSON");
    let mut count = 0;
    for text in [dashboard, example("fairlock-alerts.yml")] {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for field in words.filter(|word| word.starts_with("fairlock_")) {
            // Of several fields it is what they begin with.
            let is_start = field.ends_with('_');
            let is_it = |name: &String| name == field || is_start && name.starts_with(field);
            assert!(numbers.keys().any(is_it), "{field}");
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}
