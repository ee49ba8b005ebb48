//! `scripts/package/home` puts the public home in the place of its stand-in.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::pages::root;

const STAND_IN: &str = concat!("fairlock", ".example");

/// A copy of the files that name the home.
fn copy() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    fs::create_dir_all(dir.path().join("scripts/package")).expect("made");
    for name in ["scripts/package/home", "clients", "docs", "Cargo.toml"] {
        let mut cp = Command::new("cp");
        cp.arg("-r")
            .arg(root().join(name))
            .arg(dir.path().join(name));
        assert!(cp.status().expect("cp").success(), "{name}");
    }
    dir
}

fn put(dir: &Path, home: &str, mail: &str) -> Output {
    let mut script = Command::new(dir.join("scripts/package/home"));
    script.args([home, mail]).output().expect("run")
}

/// Files that name the stand-in, except the script itself.
fn naming(dir: &Path) -> String {
    let mut grep = Command::new("grep");
    grep.args(["-rlF", "--exclude=home", STAND_IN]).arg(dir);
    String::from_utf8(grep.output().expect("run").stdout).expect("UTF-8")
}

#[test]
fn the_public_home_takes_the_place_of_its_stand_in_everywhere() {
    let dir = copy();
    assert!(naming(dir.path()).lines().count() > 10);
    let output = put(dir.path(), "github.com/acme/fairlock", "locks@acme.test");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(naming(dir.path()), "");
    for (file, line) in [
        (
            "clients/go/go.mod",
            "module github.com/acme/fairlock/clients/go",
        ),
        (
            "clients/go/errors.go",
            "docs/operations.md at https://github.com/acme/fairlock`",
        ),
        (
            "clients/rust/Cargo.toml",
            "repository = \"https://github.com/acme/fairlock\"",
        ),
        (
            "clients/java/pom.xml",
            "<url>https://github.com/acme/fairlock</url>",
        ),
        ("Cargo.toml", "<locks@acme.test>"),
    ] {
        let text = fs::read_to_string(dir.path().join(file)).expect("a file");
        assert!(text.contains(line), "{file}: {line}");
    }
}

#[test]
fn a_home_that_cannot_be_one_changes_nothing() {
    let dir = copy();
    let before = naming(dir.path());
    for (home, mail) in [
        ("", ""),
        ("https://github.com/acme/fairlock", "locks@acme.test"),
        ("github.com/Acme/fairlock", "locks@acme.test"),
        ("github.com/acme/fairlock", "nobody"),
    ] {
        let output = put(dir.path(), home, mail);
        assert_eq!(output.status.code(), Some(2), "{home} {mail}");
    }
    assert_eq!(naming(dir.path()), before);
}
