//! A second opinion: Porcupine, a checker that is not our own, judges every history too (`tests/porcupine`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::checker::Violation;
use crate::history::History;
use crate::written::{Title, write};

/// How long it may try to explain a lock, for which it needs a second.
const PATIENCE: &str = "1m";

/// What was found, and what Porcupine finds besides. A history in which anything was found is kept, and so is one that
/// is wanted; its path is printed.
pub fn judge(history: &History, mut found: Vec<Violation>, title: &Title) -> Vec<Violation> {
    let wanted = std::env::var_os("CHAOS_HISTORY").map(PathBuf::from);
    let folder = wanted.as_deref();
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")));
    let path = write(history, &found, title, folder);
    found.extend(refusal(&path));
    if wanted.is_some() || !found.is_empty() {
        println!("  the history is in {}", path.display());
    } else {
        std::fs::remove_file(&path).expect("the history is there");
    }
    found
}

/// What Porcupine says, unless it accepts the history. Where it comes to no end in time, that is printed only.
fn refusal(history: &Path) -> Option<Violation> {
    let history = std::path::absolute(history).expect("a path");
    let mut go = go(&["run", ".", "-timeout", PATIENCE]);
    let (output, text) = said(go.arg(history));
    println!("  Porcupine: {text}");
    let is_undecided = text.ends_with("exit status 2\n");
    (!output.status.success() && !is_undecided).then_some(Violation::Porcupine(text))
}

fn go(words: &[&str]) -> Command {
    let mut go = Command::new("go");
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/porcupine"));
    go.env("GOWORK", "off").env("GOFLAGS", "-mod=readonly");
    go.args(words);
    go
}

/// How a program ended, and all that it has said.
fn said(program: &mut Command) -> (Output, String) {
    let output = program.output();
    let output = output.expect("go, which `make setup-tests` installs");
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output, text)
}

#[test]
fn its_rules_refuse_what_breaks_them_and_nothing_else() {
    for words in [&["vet", "."][..], &["test", "-count", "1", "."]] {
        let (output, text) = said(&mut go(words));
        assert!(output.status.success(), "{text}");
    }
    let (_, unformatted) = said(Command::new("gofmt").args(["-l", "tests/porcupine"]));
    assert_eq!(unformatted, "");
}
