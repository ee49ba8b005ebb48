//! Rows 32 to 34, 47, 48 and 53: clusters, the README.

use std::time::Instant;

use fairlock::{Error, Options};

use crate::support::*;

fn slot_of(view: &View, key: &str) -> u16 {
    view.run(&[&"CLUSTER", &"KEYSLOT", &key])
}

pub fn name_on(view: &View, prefix: &str, node: &str) -> String {
    let slots = match node {
        "a" => 0..=5460,
        "b" => 5461..=10922,
        _ => 10923..=16383,
    };
    let base = format!("{prefix}{}", name());
    (0..1000)
        .map(|each| format!("{base}:{each}"))
        .find(|key| slots.contains(&slot_of(view, key)))
        .unwrap()
}

#[test]
fn r32_locks_on_all_masters() {
    let cluster = Servers::new(&["cluster"]);
    both(|kind| {
        let locks = kind.cluster(
            &cluster,
            "b",
            Options {
                lease: LONG,
                ..Options::default()
            },
        );
        for node in ["a", "b", "c"] {
            let view = cluster.view(node);
            let lock = name_on(&view, "", node);
            let held = locks.get(&lock).unwrap();
            assert_eq!(view.owner(&lock), Some(held.owner()));
            let waiting = locks.begin(&lock, |_| ());
            view.waits(&lock, 1);
            let start = Instant::now();
            held.release().unwrap();
            waiting.held().release().unwrap();
            assert!(start.elapsed() < AT_ONCE);
            assert!(view.is_free(&lock));
        }
        r47_braces_that_would_spread_a_lock(&locks);
    });
}

fn r47_braces_that_would_spread_a_lock(locks: &Locks) {
    let error = locks.get("a{b").err().unwrap();
    assert!(matches!(error, Error::CrossSlot(_)) && error.code() == Some("CROSSSLOT"));
}

#[test]
fn r33_the_slot_moves_under_a_waiter() {
    let cluster = Servers::new(&["cluster"]);
    both(|kind| {
        let before = cluster.view("a");
        let lock = name_on(&before, "", "a");
        let locks = kind.cluster(
            &cluster,
            "b",
            Options {
                lease: LONG,
                ..Options::default()
            },
        );
        let held = locks.get(&lock).unwrap();
        let waiting = locks.begin(&lock, |_| ());
        before.waits(&lock, 1);
        cluster.tell(&format!("move {} c", slot_of(&before, &lock)));
        let view = cluster.view("c");
        until("it waits there", || view.are_blocked(&lock, 1));
        let start = Instant::now();
        held.release().unwrap();
        let second = waiting.held();
        assert!(start.elapsed() < AT_ONCE);
        assert_eq!(view.owner(&lock), Some(second.owner()));
        second.release().unwrap();
    });
}

#[test]
fn r34_a_master_is_gone_for_a_while() {
    let cluster = Servers::new(&["cluster"]);
    both(|kind| {
        let nodes = ["b", "c"];
        let some = cluster.view("a");
        let options = Options {
            lease: LONG,
            retry_timeout: LONGEST,
            ..Options::default()
        };
        let locks = kind.cluster(&cluster, "a", options);
        let names = nodes.map(|node| name_on(&some, "", node));
        let held: Vec<_> = names.iter().map(|lock| locks.get(lock).unwrap()).collect();
        let mut waiting: Vec<_> = names.iter().map(|lock| locks.begin(lock, |_| ())).collect();
        for (node, lock) in nodes.iter().zip(&names) {
            cluster.view(node).waits(lock, 1);
        }
        cluster.tell("kill c");
        let b = cluster.view("b");
        until("the cluster is down", || {
            b.run::<String>(&[&"CLUSTER", &"INFO"])
                .contains("cluster_state:fail")
        });
        assert!(!waiting.iter_mut().any(Begun::is_done));
        cluster.tell("start c");
        for (node, lock) in nodes.iter().zip(&names) {
            let view = cluster.view(node);
            until("it serves again", || view.are_blocked(lock, 1));
        }
        for (each, next) in held.iter().zip(waiting) {
            each.release().unwrap();
            next.held().release().unwrap();
        }
    });
}

/// The programs of the README are those in examples/, and print what the README says.
#[test]
fn r53_the_programs_of_the_readme_run() {
    let package = env!("CARGO_MANIFEST_DIR");
    let text = std::fs::read_to_string(format!("{package}/README.md")).unwrap();
    let between = |text: &str, begin: &str| {
        let rest = text.split_once(begin).unwrap().1.to_owned();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let promised = between(text.split_once("It prints").unwrap().1, "```text\n");
    let one = Servers::new(&["one"]);
    // Beside this test's own program: target/<profile>/deps/../examples.
    let here = std::env::current_exe().unwrap();
    let folder = here.parent().unwrap().with_file_name("examples");
    for (place, name) in ["hello", "hello_tokio"].into_iter().enumerate() {
        let program = text.split("```rust,no_run\n").nth(place + 1).unwrap();
        let example = std::fs::read_to_string(format!("{package}/examples/{name}.rs")).unwrap();
        // A reader's server has the usual port.
        let local = example.split_once("\n\n").unwrap().1.replace(
            "&std::env::var(\"URL\").unwrap()[..]",
            "\"redis://localhost\"",
        );
        assert_eq!(program.split_once("```").unwrap().0, local);
        let output = std::process::Command::new(folder.join(name))
            .env("URL", one.url("a"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let masked = |text: &str| text.replace(|each: char| each.is_ascii_digit(), "0");
        assert_eq!(masked(&said), masked(&promised));
    }
}

/// The README says how to test a program of one's own.
#[test]
fn r48_programs_are_tested_on_a_server_without_the_module() {
    let package = env!("CARGO_MANIFEST_DIR");
    let text = std::fs::read_to_string(format!("{package}/README.md")).unwrap();
    let example = std::fs::read_to_string(format!("{package}/examples/own_tests.rs")).unwrap();
    let shown = text.split_once("```rust,ignore\n").unwrap().1;
    let shown = shown.split_once("```").unwrap().0;
    assert!(example.ends_with(shown), "{shown}");
    let here = std::env::current_exe().unwrap();
    let program = here.parent().unwrap().with_file_name("examples/own_tests");
    let output = std::process::Command::new(program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
