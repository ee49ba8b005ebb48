//! `make test-matrix` goes on after a failure, and lists all failures at its end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

pub fn program(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

/// Runs the matrix on servers `old` and `new`, where a stand-in for scripts/test/servers knows only `old`, and a
/// stand-in for cargo fails on demand. Returns whether it succeeds, its output, and its runs.
fn matrix_of(readme: &str, cargo: &str, may_lack: &str) -> (bool, String, String) {
    let dir = TempDir::new().expect("a directory");
    let scripts = dir.path().join("scripts/test");
    fs::create_dir_all(&scripts).expect("made");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test/matrix");
    fs::copy(script, scripts.join("matrix")).expect("copied");
    program(
        &scripts.join("servers"),
        "if [ \"$1\" = --newest ]; then echo redis-9.8; else [ \"$1\" != new ]; fi",
    );
    fs::write(dir.path().join("README.md"), readme).expect("written");
    program(
        &scripts.join("cargo"),
        &format!("echo \"$7 ${{PATH%%:*}} ${{10}}\" >>ran\n{cargo}"),
    );
    let path = std::env::var("PATH").expect("a path");
    let output = Command::new(scripts.join("matrix"))
        .env("PATH", format!("{}:{path}", scripts.display()))
        .env("SERVERS", "new old older")
        .env("MATRIX_TESTS", "black_box redisson")
        .env("REDISSON_TESTS", "intercept::")
        .env("MAY_LACK", may_lack)
        .output()
        .expect("run");
    let said = [output.stdout, output.stderr].concat();
    let ran = fs::read_to_string(dir.path().join("ran")).expect("what was run");
    let root = format!("{}/target/servers/", dir.path().display());
    (
        output.status.success(),
        String::from_utf8(said).expect("UTF-8"),
        ran.replace(&root, ""),
    )
}

fn matrix(cargo: &str, may_lack: &str) -> (bool, String, String) {
    matrix_of("", cargo, may_lack)
}

const ALL: &str = "black_box old \nredisson old intercept::\n\
                   black_box older \nredisson older intercept::\n";

#[test]
fn a_server_that_may_be_missing_is_no_failure_and_is_named() {
    let (passed, said, ran) = matrix("true", "new");
    assert!(passed, "{said}");
    assert_eq!(ran, ALL);
    assert!(said.contains("NOT RUN: there is no new"), "{said}");
    assert!(said.contains("redisson intercept:: on older"), "{said}");
}

#[test]
fn a_server_that_must_not_be_missing_is_a_failure_after_all_others_were_tried() {
    let (passed, said, ran) = matrix("true", "");
    assert!(!passed, "{said}");
    assert_eq!(ran, ALL);
    assert!(said.contains("FAILED: no new"), "{said}");
}

#[test]
fn a_suite_that_fails_stops_nothing_and_is_named_at_the_end() {
    let (passed, said, ran) = matrix("[ \"$7\" != black_box ]", "new");
    assert!(!passed, "{said}");
    assert_eq!(ran, ALL);
    for server in ["old", "older"] {
        let failure = format!("FAILED: black_box on {server}\n");
        assert!(said.contains(&failure), "{said}");
    }
    assert!(!said.contains("FAILED: redisson"), "{said}");
}

#[test]
fn a_server_that_is_newer_than_those_of_the_readme_is_named() {
    let newer = "NEWER: Debian has redis-9.8, and the README names no Redis 9.8";
    let (_, said, _) = matrix_of("Tested: Redis 9.7.", "true", "new");
    assert!(said.contains(newer), "{said}");
    let (_, said, _) = matrix_of("Tested: Redis 9.8.1.", "true", "new");
    assert!(!said.contains("NEWER"), "{said}");
}
