//! `make test` runs every suite that was built, also after a failure, and names those that failed at its end.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::matrix::program;

/// Runs the script with a stand-in for cargo that has built three suites, in each of which it does something. Returns
/// whether it succeeds, its output, and the suites that ran.
fn run(built: &str, suite: &str) -> (bool, String, Vec<String>) {
    let dir = TempDir::new().expect("a directory");
    let scripts = dir.path().join("scripts/test");
    fs::create_dir_all(&scripts).expect("made");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test/side-by-side");
    fs::copy(script, scripts.join("side-by-side")).expect("copied");
    program(
        &scripts.join("cargo"),
        &format!(
            "if [ \"$6\" = --no-run ]; then {built}; exit; fi
            echo \"$7 $8\" >>ran
            {suite}"
        ),
    );
    let path = std::env::var("PATH").expect("a path");
    // Not by itself: while another test starts a program, a file that was just written cannot be run.
    let output = Command::new("bash")
        .arg(scripts.join("side-by-side"))
        .env("PATH", format!("{}:{path}", scripts.display()))
        .output()
        .expect("run");
    let said = [output.stdout, output.stderr].concat();
    let ran = fs::read_to_string(dir.path().join("ran")).unwrap_or_default();
    let mut ran: Vec<_> = ran.lines().map(|line| line.trim().to_owned()).collect();
    ran.sort();
    (
        output.status.success(),
        String::from_utf8(said).expect("UTF-8"),
        ran,
    )
}

const BUILT: &str = "echo '  Executable unittests src/lib.rs (deps/one-1)
  Executable tests/chaos/main.rs (deps/chaos-1)
  Executable unittests src/lib.rs (deps/two-1)
  Executable tests/pages.rs (deps/pages-1)' >&2";
const ALL: [&str; 3] = ["--lib", "--test chaos", "--test pages"];

#[test]
fn every_suite_that_was_built_runs_once() {
    let (passed, said, ran) = run(BUILT, "echo \"said in $8\"");
    assert!(passed, "{said}");
    assert_eq!(ran, ALL);
    for name in ["chaos", "pages"] {
        assert!(said.contains(&format!("said in {name}\n")), "{said}");
    }
}

#[test]
fn a_suite_that_fails_keeps_no_other_from_running_and_is_named_at_the_end() {
    let (passed, said, ran) = run(BUILT, "[ \"$8\" != chaos ]");
    assert!(!passed, "{said}");
    assert_eq!(ran, ALL);
    let last = said.lines().last().expect("a line");
    assert!(last.starts_with("side-by-side: FAILED "), "{said}");
    assert!(last.ends_with(": chaos"), "{said}");
    assert_eq!(said.matches("passed").count(), 4, "{said}");
}

#[test]
fn what_cannot_be_built_and_what_builds_nothing_is_a_failure() {
    for built in [format!("{BUILT}; exit 1"), "true".to_owned()] {
        let (passed, said, ran) = run(&built, "true");
        assert!(!passed, "{said}");
        assert_eq!(ran, [""; 0]);
    }
}
