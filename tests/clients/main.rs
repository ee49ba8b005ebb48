//! The client packages in `clients/`: the rows of `clients/conformance` over all of them, by
//! `clients/conformance`, and each one's own tests, by its own test runner; with the module that was just built.

// All of it is for tests: one that cannot go on panics.
#![cfg(test)]

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use fairlock_testing::{paths, server};

/// Longest that a package may take, with fetching all it needs. Only ever reached on failure.
const SECONDS: &str = "900";
/// What the suite is run for in any case; one flavour of the TypeScript package is left to `make test-all`.
const CLIENTS: [&str; 5] = ["python", "node-redis", "go", "java", "rust"];
const LANGUAGES: [&str; 5] = ["python", "typescript", "java", "go", "rust"];

/// Each of these runs many programs at a time: two of them keep the machine busy, and more would starve their servers.
fn lane(number: usize) -> MutexGuard<'static, ()> {
    static LANES: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];
    let lane = LANES.get(number).expect("a lane");
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program of the repository, which is told of the module under test and of cargo's folder.
fn program(seconds: &str, path: &str) -> Command {
    let mut program = Command::new("timeout");
    program
        .arg(seconds)
        .arg(paths::root().join(path))
        .env("FAIRLOCK_MODULE", server::module())
        .env("CARGO_TARGET_DIR", paths::target());
    program
}

/// Runs it to its end, which must be a good one; what it has said.
fn check(command: &mut Command) -> String {
    let output = command.output().expect("started");
    let parts = [&output.stdout, &output.stderr];
    let said = parts.map(|part| String::from_utf8_lossy(part)).concat();
    assert!(output.status.success(), "{said}");
    said
}

/// What is tested beside a package.
fn suite(language: &str) {
    let is_in_second = matches!(language, "typescript" | "java" | "rust");
    let _lane = lane(usize::from(is_in_second));
    check(program(SECONDS, &format!("scripts/clients/{language}")).arg("test"));
}

/// The rows of the table, for these clients, with the module or by scripts.
fn rows(clients: &[&str], mode: &str) {
    let _lane = lane(0);
    let mut suite = program(SECONDS, "scripts/clients/conformance");
    suite.arg("test").args(clients).args(["--", "--mode", mode]);
    println!("{}", check(&mut suite));
}

#[test]
fn the_packages_do_what_the_table_says() {
    rows(&CLIENTS, "module");
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn the_packages_do_so_by_scripts_and_with_ioredis_too() {
    rows(&CLIENTS, "scripts");
    rows(&["ioredis"], "module scripts");
}

#[test]
fn each_package_does_what_is_usual_in_its_language() {
    thread::scope(|scope| {
        for language in LANGUAGES {
            scope.spawn(move || suite(language));
        }
    });
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn while_masters_are_killed_no_lock_has_two_holders() {
    let _lane = lane(0);
    let mut faults = program(SECONDS, "clients/conformance/lab/faults");
    faults.args(["--rounds", "2", "--only", "kill,planned,paused"]);
    print!("{}", check(faults.args(LANGUAGES)));
}

/// All of them, if `PARTITION_ROUNDS` says how often each, with a table of what was seen; by the dice of
/// `PARTITION_SEED`.
#[test]
#[ignore = "takes minutes: make test-all"]
fn while_partitions_last_no_lock_has_two_confirmed_holders() {
    let _lane = lane(1);
    let rounds = std::env::var("PARTITION_ROUNDS");
    let seconds = if rounds.is_ok() { "0" } else { SECONDS };
    let mut faults = program(seconds, "clients/conformance/lab/faults");
    match &rounds {
        Ok(rounds) => faults.args(["--rounds", rounds, "python"]),
        Err(_) => faults.args(["--only", "alone,clients,cluster", "python"]),
    };
    if let Ok(seed) = std::env::var("PARTITION_SEED") {
        faults.args(["--seed", &seed]);
    }
    print!("{}", check(&mut faults));
}
