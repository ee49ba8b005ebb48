//! The programs in `examples/`, run against a real server: those that use the client packages, and the
//! recipes for clients that have no package yet.
//!
//! A recipe checks itself: it ends with an error if anything is not as it says. Here it is checked
//! that it has said everything, and what the server has to say about it.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::must_use_candidate
)]

mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;

use fairlock_testing::{Server, wait_until};

/// What every recipe shows, in its own words.
const SHOWN: [&str; 9] = [
    "have added 5 each",
    "not in time",
    "left the queue",
    "tokens grow",
    "the store refuses the old token",
    "the lock was lost",
    "the newer value stays",
    "the session holds",
    "at once, not when a minute's lease ends",
];
/// What shows that waiting was done by asking again, too.
const WOKEN: &str = "woken in turn";
/// Longest that a recipe may take, with fetching all it needs. Only ever reached on failure.
const SECONDS: &str = "900";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn target() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    target.expect("the folder above").to_owned()
}

/// Runs a recipe on a server of its own, whose lock has a name.
fn run(command: &mut Command, lock: &str) -> String {
    let server = Server::start();
    let output = command
        .arg(format!("redis://127.0.0.1:{}", server.port))
        .env("CARGO_TARGET_DIR", target())
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    for sentence in SHOWN {
        assert!(said.contains(sentence), "not shown: {sentence}\n{said}");
    }
    check(&server, lock);
    said
}

/// What a recipe has left behind, as others see it.
fn check(server: &Server, lock: &str) {
    let mut client = server.connect();
    wait_until("all have let go", || client.run("FAIRLOCK.LOCKS") == "[]");
    assert_eq!(client.run(&format!("HGET {lock}:stock amount")), "7");
    let written = client.int(&format!("HGET {lock}:stock token"));
    let last = client.int(&format!("FAIRLOCK.ACQUIRE {lock} last"));
    assert!(0 < written && written < last, "{written}, {last}");
    let waited: i64 = ["timeouts", "cancels"]
        .map(|field| server.info("fairlock", &format!("fairlock_{field}")))
        .map(|count| count.parse::<i64>().expect("a number"))
        .iter()
        .sum();
    assert!(waited > 0, "nobody has given up");
}

fn script(program: &str, lock: &str) -> String {
    let mut command = Command::new("timeout");
    command
        .arg(SECONDS)
        .arg(root().join("scripts/example"))
        .arg(program);
    run(&mut command, lock)
}

/// Builds an example of the crate's as this test was built, and runs it.
fn rust(name: &str, lock: &str) -> String {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.ancestors().nth(2).expect("its folder's folder");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--locked", "--quiet", "--example", name]);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    build.current_dir(root()).env("CARGO_TARGET_DIR", target());
    assert!(build.status().expect("cargo").success(), "{name}");
    let mut command = Command::new("timeout");
    command
        .arg(SECONDS)
        .arg(profile.join("examples").join(name));
    run(&mut command, lock)
}

#[test]
fn goroutines_share_a_lock_with_go_redis() {
    script("go/main.go", "example:go-redis");
}

#[test]
fn java_threads_share_a_lock_with_jedis() {
    script("java/JedisExample.java", "example:jedis");
}

#[test]
fn java_threads_share_a_connection_of_lettuce() {
    let said = script("java/LettuceExample.java", "example:lettuce");
    assert!(said.contains(WOKEN), "{said}");
}

#[test]
fn rust_threads_share_a_lock_with_the_redis_crate() {
    rust("blocking", "example:redis-rs");
}

#[test]
fn rust_tasks_share_a_connection_of_the_redis_crate() {
    let said = rust("multiplexed", "example:redis-rs-tokio");
    assert!(said.contains(WOKEN), "{said}");
}
