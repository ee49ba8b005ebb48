//! Judges exclusion and tokens: Porcupine, a checker that is not our own, with a model of a lock (`tests/porcupine`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use fairlock_testing::needs_only_rust;

use crate::checker::{Kind, Violation};
use crate::history::History;
use crate::written::write;

/// What it exits with if it has come to no end in time.
const UNDECIDED: i32 = 3;

/// What was found, and what Porcupine finds besides, where there may be Go to build it with. A history in which
/// anything was found is kept, and so is one that is wanted; its path is printed.
pub fn judge(history: &History, mut found: Vec<Violation>, run: &str) -> Vec<Violation> {
    let wanted = std::env::var_os("CHAOS_HISTORY").map(PathBuf::from);
    let folder = wanted.as_deref();
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")));
    let path = write(history, &found, run, folder);
    if !needs_only_rust() {
        let (output, text) = said(Command::new(program()).arg(&path));
        println!("{text}");
        if !output.status.success() && output.status.code() != Some(UNDECIDED) {
            found.push(Violation::said(Kind::Porcupine, &text));
        }
    }
    if wanted.is_some() || !found.is_empty() {
        println!("  the history is in {}", path.display());
    } else {
        std::fs::remove_file(&path).expect("the history is there");
    }
    found
}

/// Built once.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("porcupine");
        let mut go = Command::new("go");
        go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/porcupine"));
        go.env("GOWORK", "off").env("GOFLAGS", "-mod=readonly");
        let (output, text) = said(go.args(["build", "-o"]).arg(&path).arg("."));
        assert!(output.status.success(), "{text}");
        path
    })
}

/// How a program ended, and all that it has said.
fn said(program: &mut Command) -> (Output, String) {
    let output = program.output();
    let output = output.expect("go, which `make setup-tests` installs");
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::broken;

    /// Which of the histories are refused.
    fn refused(histories: &[History]) -> Vec<bool> {
        let folder = tempfile::tempdir().expect("a folder");
        let written = |history| write(history, &[], "broken", folder.path());
        let paths: Vec<PathBuf> = histories.iter().map(written).collect();
        let (_, text) = said(Command::new(program()).args(&paths));
        let verdict = |path: &PathBuf| {
            let mine = format!("{} lock", path.display());
            let mut lines = text.lines().filter(|line| line.starts_with(&mine));
            let last = lines.next_back().expect("a verdict");
            assert!(!last.ends_with("Unknown"), "{text}");
            last.ends_with("Illegal")
        };
        paths.iter().map(verdict).collect()
    }

    #[test]
    fn histories_that_break_a_rule_are_refused_and_no_others() {
        let cases = broken::cases(include_str!("../porcupine/broken.txt"));
        let histories: Vec<History> = cases.iter().map(|case| case.history.clone()).collect();
        for (case, is_refused) in cases.iter().zip(refused(&histories)) {
            assert_eq!(is_refused, case.expected == "refused", "{}", case.text);
        }
    }
}
