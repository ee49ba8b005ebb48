//! Rows 32 to 34, 47 to 49, 52 and 53: clusters, the fake, the README.

use std::time::{Duration, Instant};

use fairlock::{Cause, Error, Options};

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

#[test]
fn r48_the_fake_is_fair() {
    both(|kind| {
        let (fake, control) = kind.fake(Options::default());
        let waits = |count| until("they wait", || control.waiting("orders").len() == count);
        let first = fake.get("orders").unwrap();
        let late = fake.acquire("orders", |all| all.wait = Some(ms(50)));
        assert!(matches!(late, Err(Error::NotInTime(..))));
        assert!(fake.try_acquire("orders").unwrap().is_none());
        if kind == Kind::Tasks {
            let cancelled = fake.begin("orders", |_| ());
            waits(1);
            cancelled.cancel();
        }
        waits(0);
        let mut waiting = Vec::new();
        for count in 1..=3 {
            waiting.push(fake.begin("orders", |_| ()));
            waits(count);
        }
        let order = control.waiting("orders");
        first.release().unwrap();
        let mut last = first.token();
        for (each, owner) in waiting.into_iter().zip(order) {
            let held = each.held();
            assert_eq!(held.owner(), owner);
            assert!(held.token() > last);
            last = held.token();
            held.release().unwrap();
        }
        let (outer, inner) = fake.nested("orders", || ()).unwrap();
        assert_eq!(outer, inner);
        assert!(matches!(
            fake.acquire("orders", |all| all.lease = Duration::ZERO),
            Err(Error::Argument(_))
        ));
        assert!(control.holders("orders").is_empty());
    });
}

#[test]
fn r48_the_fake_calls_hooks() {
    use fairlock::{Event, Hook, Hooks};
    use std::sync::{Arc, Mutex};
    both(|kind| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hook = |which: &'static str| -> Option<Hook> {
            let told = told.clone();
            Some(Arc::new(move |_: &Event| told.lock().unwrap().push(which)))
        };
        let (on_wait, on_acquired) = (hook("wait"), hook("acquired"));
        let (on_lost, on_released) = (hook("lost"), hook("released"));
        let hooks = Hooks {
            on_wait,
            on_acquired,
            on_lost,
            on_released,
        };
        let (fake, control) = kind.fake(Options {
            hooks,
            ..Options::default()
        });
        let held = fake.get("orders").unwrap();
        let waiting = fake.begin("orders", |_| ());
        until("it waits", || control.waiting("orders").len() == 1);
        held.release().unwrap();
        let _second = waiting.held();
        control.break_lock("orders");
        let mut all = told.lock().unwrap().clone();
        all.sort_unstable();
        assert_eq!(all, ["acquired", "acquired", "lost", "released", "wait"]);
    });
}

#[test]
fn r49_a_fake_lock_is_lost() {
    both(|kind| {
        for cause in [Cause::Lease, Cause::NotHeld] {
            let (fake, control) = kind.fake(Options::default());
            let held = fake.get("orders").unwrap();
            let waiting = fake.begin("orders", |_| ());
            until("it waits", || control.waiting("orders").len() == 1);
            match cause {
                Cause::Lease => control.expire("orders"),
                _ => control.break_lock("orders"),
            }
            assert_eq!(held.lost(), cause);
            let second = waiting.held();
            assert_eq!(held.release().unwrap_err().cause(), Some(cause));
            assert_eq!(control.holders("orders"), [second.owner()]);
        }
    });
}

#[test]
fn r49_a_lock_is_lost_that_its_holder_does_not_know_of_yet() {
    both(|kind| {
        let (fake, control) = kind.fake(Options::default());
        let first = fake.get("orders").unwrap();
        let second = fake.begin("orders", |_| ());
        until("it waits", || control.waiting("orders").len() == 1);
        control.expire("orders");
        control.break_lock("orders");
        assert_eq!(first.lost(), Cause::Lease);
        assert_eq!(second.held().lost(), Cause::NotHeld);
        assert!(control.holders("orders").is_empty());
    });
}

#[test]
fn r52_the_fake_knows_shared_and_limited_locks() {
    both(|kind| {
        let (fake, control) = kind.fake(Options::default());
        let waits = |name, count| until("they wait", || control.waiting(name).len() == count);
        let shared = |all: &mut Options| all.shared = true;
        let readers: Vec<_> = (0..3)
            .map(|_| fake.acquire("orders", shared).unwrap())
            .collect();
        let mut writer = fake.begin("orders", |_| ());
        waits("orders", 1);
        let mut late = fake.begin("orders", shared);
        waits("orders", 2);
        for reader in readers {
            assert!(!writer.is_done());
            reader.release().unwrap();
        }
        let held = writer.held();
        assert!(!late.is_done());
        held.release().unwrap();
        late.held().release().unwrap();
        let two = |all: &mut Options| all.limit = Some(2);
        let (first, _second) = (
            fake.acquire("slots", two).unwrap(),
            fake.acquire("slots", two).unwrap(),
        );
        let third = fake.acquire("slots", |all| {
            (all.limit, all.wait) = (Some(2), Some(Duration::ZERO))
        });
        assert!(matches!(third, Err(Error::NotInTime(..))));
        let waiting = fake.begin("slots", two);
        waits("slots", 1);
        first.release().unwrap();
        waiting.held().release().unwrap();
    });
}

/// The programs of the README are those in examples/, and say what the first is said to print.
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
