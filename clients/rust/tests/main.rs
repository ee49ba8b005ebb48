//! What is idiom in Rust; the rows of the table are tested by clients/conformance.

#![allow(missing_docs, clippy::pedantic)] // Names of tests are sentences.

mod servers;

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlock::{Error, Locks, aio};
use servers::{Server, until};

const FIRST: &str = "the body's own";

fn is_free(locks: &Locks) -> bool {
    locks.info("orders").unwrap().owner.is_none()
}

/// What this test's own program is to do in a child process, if it is one.
fn child(test: &str, task: &str, server: &Server) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program
        .args([test, "--exact", "--nocapture"])
        .env(task, server.url());
    program
}

#[test]
fn a_guard_that_is_dropped_releases_also_by_an_early_return_and_a_panic() {
    let server = Server::new();
    let locks = server.locks();
    let body = || -> Result<(), &str> {
        let _held = locks.lock("orders").acquire().unwrap();
        assert!(!is_free(&locks));
        Err(FIRST)
    };
    assert_eq!(body(), Err(FIRST));
    assert!(is_free(&locks));
    let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _held = locks.lock("orders").acquire().unwrap();
        std::panic::resume_unwind(Box::new(FIRST));
    }));
    assert!(panicking.is_err() && is_free(&locks));
}

#[tokio::test]
async fn a_guard_of_tokio_that_is_dropped_is_released_by_a_task() {
    let server = Server::new();
    let locks = server.tasks_locks();
    drop(locks.lock("orders").acquire().await.unwrap());
    let held = locks.lock("orders").wait(Duration::from_secs(60)).acquire();
    held.await.unwrap().release().await.unwrap();
}

#[test]
fn a_guard_that_is_dropped_without_a_server_is_not_renewed() {
    let server = Server::new();
    let client = redis::Client::open(server.url_of("proxy")).unwrap();
    let short = Duration::from_millis(100);
    let options = fairlock::Options {
        release_timeout: short,
        command_timeout: short,
        ..Default::default()
    };
    let locks = Locks::new(&client).unwrap().with(options);
    let lock = locks.lock("orders").lease(Duration::from_millis(1500));
    let held = lock.acquire().unwrap();
    server.tell("cut");
    drop(held);
    server.tell("mend");
    until("its lease has ended", || is_free(&server.locks()));
}

#[tokio::test]
async fn a_future_that_is_dropped_leaves_the_queue() {
    let server = Server::new();
    let locks = server.tasks_locks();
    let held = locks.lock("orders").acquire().await.unwrap();
    let wait = tokio::time::timeout(Duration::from_millis(300), locks.lock("orders").acquire());
    assert!(wait.await.is_err());
    while locks.info("orders").await.unwrap().waiting > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    held.release().await.unwrap();
    let free = locks.info("orders").await.unwrap();
    assert_eq!(free.owner, None);
}

#[tokio::test]
async fn a_thousand_tasks_hold_it_in_the_order_of_their_calls() {
    let server = Server::new();
    let locks = Arc::new(server.tasks_locks());
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for each in 0..1000 {
        let (locks, order) = (locks.clone(), order.clone());
        tasks.spawn(async move {
            let held = locks.lock("orders").acquire().await.unwrap();
            order.lock().unwrap().push(each);
            held.release().await.unwrap();
        });
    }
    tasks.join_all().await;
    let order = order.lock().unwrap();
    assert!(order.iter().copied().eq(0..1000), "{order:?}");
}

#[test]
fn a_release_that_its_runtime_does_not_do_is_told() {
    if let Ok(url) = std::env::var("ENDS") {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        return runtime.unwrap().block_on(async {
            let locks = aio::Locks::new(&redis::Client::open(url).unwrap()).unwrap();
            let _held = locks.lock("orders").acquire().await.unwrap();
        });
    }
    let server = Server::new();
    let test = "a_release_that_its_runtime_does_not_do_is_told";
    let output = child(test, "ENDS", &server).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("orders") && errors.contains("release()"),
        "{errors}"
    );
    assert!(!is_free(&server.locks()));
}

#[test]
fn children_have_no_connection_of_their_parent() {
    if std::env::var("CHILD").is_ok() {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = open.filter_map(|each| std::fs::read_link(each.unwrap().path()).ok());
        let sockets = links.filter(|link| link.to_string_lossy().starts_with("socket:"));
        assert_eq!(sockets.count(), 0);
        return;
    }
    let server = Server::new();
    let locks = server.locks();
    let held = locks.lock("orders").acquire().unwrap();
    let test = "children_have_no_connection_of_their_parent";
    let output = child(test, "CHILD", &server).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    held.renew().unwrap();
}

#[test]
fn what_is_no_address_is_refused() {
    for wrong in [
        vec!["not an address"],
        vec!["redis+unix:///tmp/socket"],
        vec![],
    ] {
        let errors = [
            Locks::sentinel(wrong.clone(), "locks", None).err(),
            aio::Locks::sentinel(wrong.clone(), "locks", None).err(),
            Locks::cluster(wrong.clone()).err(),
            aio::Locks::cluster(wrong).err(),
        ];
        for error in errors.map(Option::unwrap) {
            assert!(matches!(error, Error::Argument(_)));
            assert!(error.to_string().contains("such as redis://host:6379"));
        }
    }
}

/// The programs of the README are those in examples/, and print what the README says.
#[test]
fn the_programs_of_the_readme_run() {
    let package = env!("CARGO_MANIFEST_DIR");
    let text = std::fs::read_to_string(format!("{package}/README.md")).unwrap();
    let promised = text.split_once("It prints").unwrap().1;
    let promised = promised.split_once("```text\n").unwrap().1;
    let promised = promised.split_once("```").unwrap().0;
    let server = Server::new();
    for (place, name) in ["hello", "hello_tokio"].into_iter().enumerate() {
        let program = text.split("```rust,no_run\n").nth(place + 1).unwrap();
        let example = std::fs::read_to_string(format!("{package}/examples/{name}.rs")).unwrap();
        let example = example.split_once("\n\n").unwrap().1;
        // A reader's server has the usual port.
        let local = example.replace(
            "&std::env::var(\"URL\").unwrap()[..]",
            "\"redis://localhost\"",
        );
        assert_eq!(program.split_once("```").unwrap().0, local);
        let mut example = Command::new(servers::example(name));
        let output = example.env("URL", server.url()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let masked = |text: &str| text.replace(|each: char| each.is_ascii_digit(), "0");
        assert_eq!(masked(&said), masked(promised));
    }
}

/// The README says how to test a program of one's own.
#[test]
fn programs_are_tested_on_a_server_without_the_module() {
    let package = env!("CARGO_MANIFEST_DIR");
    let text = std::fs::read_to_string(format!("{package}/README.md")).unwrap();
    let example = std::fs::read_to_string(format!("{package}/examples/own_tests.rs")).unwrap();
    let shown = text.split_once("```rust,ignore\n").unwrap().1;
    assert!(example.ends_with(shown.split_once("```").unwrap().0));
    let output = Command::new(servers::example("own_tests"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
