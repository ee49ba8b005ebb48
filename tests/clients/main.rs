//! The client packages in `clients/`: each one's own tests, run by its own test runner against servers with the module
//! that was just built; and that each tests every row of the table in `clients/README.md`.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Longest that a package may take, with fetching all it needs. Only ever reached on failure.
const SECONDS: &str = "900";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn target() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    target.expect("the folder above").to_owned()
}

/// The module as this test was built with it.
fn module() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().expect("its folder").join("libfairlock.so")
}

fn said(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts.map(|part| String::from_utf8_lossy(part)).concat()
}

fn package(language: &str) {
    let output = Command::new("timeout")
        .arg(SECONDS)
        .arg(root().join("scripts/clients").join(language))
        .arg("test")
        .env("FAIRLOCK_MODULE", module())
        .env("CARGO_TARGET_DIR", target())
        .output()
        .expect("started");
    assert!(output.status.success(), "{language}\n{}", said(&output));
}

#[test]
fn the_python_package_does_what_the_table_says() {
    package("python");
}

#[test]
fn the_typescript_package_does_what_the_table_says() {
    package("typescript");
}

#[test]
fn the_java_package_does_what_the_table_says() {
    package("java");
}

#[test]
fn the_go_package_does_what_the_table_says() {
    package("go");
}

#[test]
fn the_rust_package_does_what_the_table_says() {
    package("rust");
}

fn check(command: &mut Command) {
    let output = command.output().expect("started");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn every_row_of_the_table_has_a_test_in_every_package() {
    check(&mut Command::new(root().join("clients/testing/rows")));
}

#[test]
fn what_counts_holds_that_overlap_counts_them() {
    check(&mut Command::new(
        root().join("clients/testing/overlaps_test.py"),
    ));
}

// The last by its name: the packages' own tests keep their programs from being built meanwhile.
#[test]
fn while_masters_are_killed_no_lock_has_two_holders() {
    let mut failovers = Command::new("timeout");
    failovers
        .arg(SECONDS)
        .arg(root().join("clients/testing/failovers"))
        .args(["python", "typescript", "java", "go", "rust"])
        .env("FAIRLOCK_MODULE", module())
        .env("CARGO_TARGET_DIR", target());
    check(&mut failovers);
}
