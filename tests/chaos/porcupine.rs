//! Judges exclusion and tokens: Porcupine, a checker that is not our own, with a model of a lock (`tests/porcupine`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use fairlock_testing::needs_only_rust;

use crate::checker::{Kind, Violation};
use crate::history::History;
use crate::written::{Title, write};

/// What it exits with if it has come to no end in time.
const UNDECIDED: i32 = 3;

/// What was found, and what Porcupine finds besides, where there may be Go to build it with. A history in which
/// anything was found is kept, and so is one that is wanted; its path is printed.
pub fn judge(history: &History, mut found: Vec<Violation>, title: &Title) -> Vec<Violation> {
    let wanted = std::env::var_os("CHAOS_HISTORY").map(PathBuf::from);
    let folder = wanted.as_deref();
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")));
    let path = write(history, &found, title, folder);
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
        let mut go = go(&["build", "-o"]);
        let (output, text) = said(go.arg(&path).arg("."));
        assert!(output.status.success(), "{text}");
        path
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::broken;
    use crate::history::{Answer, Call, Request, Way};
    use crate::written::read;

    /// Which of the histories are refused.
    fn refused(histories: &[History]) -> Vec<bool> {
        let folder = tempfile::tempdir().expect("a folder");
        let written = |history| write(history, &[], &Title::default(), folder.path());
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

    /// What makes a recorded history wrong, by changing it at a call or a sight; false if it is none for that. In some
    /// places it becomes another right one: a token where an answer was lost, a holder whose lease may have ended.
    type Mutation = (&'static str, fn(&mut History, usize) -> bool);

    const MUTATIONS: [Mutation; 7] = [
        (
            "two acquisitions have each other's tokens",
            |history, at| {
                let Some([one, other]) = two_grants(history, at) else {
                    return false;
                };
                let answer = history.calls[one].answer.clone();
                history.calls[one].answer = history.calls[other].answer.clone();
                history.calls[other].answer = answer;
                true
            },
        ),
        ("a token is given twice", |history, at| {
            let two = two_grants(history, at);
            if let Some([one, other]) = two {
                history.calls[other].answer = history.calls[one].answer.clone();
            }
            two.is_some()
        }),
        ("a token is lower by a second", |history, at| {
            let token = history.calls.get(at).and_then(token);
            if let Some(token) = token {
                history.calls[at].answer = Answer::Granted(Some(token - 1_000_000));
            }
            token.is_some()
        }),
        ("a holder is told that it is none", |history, at| {
            changed(history, at, Answer::NotHeld)
        }),
        ("a release leaves a hold more", |history, at| {
            changed(history, at, Answer::Left(1))
        }),
        ("a release never was", |history, at| {
            let is_last = changed(history, at, Answer::Done);
            if is_last {
                history.calls[at].request = Request::Cancel { owner: 0 };
            }
            is_last && history.calls[at..].iter().any(|call| token(call).is_some())
        }),
        ("the keys name one more", |history, at| {
            let sight = history.sights.get_mut(at);
            sight.map(|sight| sight.holders.push(99)).is_some()
        }),
    ];

    fn token(call: &Call) -> Option<i64> {
        match (call.request, &call.answer) {
            (Request::Acquire { way, .. }, Answer::Granted(token)) if way != Way::Transaction => {
                *token
            }
            _ => None,
        }
    }

    /// The grant at this place and the next one, of two clients.
    fn two_grants(history: &History, at: usize) -> Option<[usize; 2]> {
        let (one, rest) = history.calls.get(at..)?.split_first()?;
        let next = rest.iter().position(|call| token(call).is_some())?;
        let differ = token(one).is_some() && one.client != rest[next].client;
        differ.then_some([at, at + 1 + next])
    }

    /// Gives the last release of a hold another answer.
    fn changed(history: &mut History, at: usize, answer: Answer) -> bool {
        let call = history.calls.get_mut(at);
        let last = call.filter(|call| call.answer == Answer::Left(0));
        last.map(|call| call.answer = answer).is_some()
    }

    #[test]
    fn a_recorded_history_is_taken_and_refused_when_it_is_spoilt() {
        let recorded = read(include_str!("../porcupine/recorded.jsonl"));
        assert_eq!(refused(std::slice::from_ref(&recorded)), [false]);
        for (name, spoil) in MUTATIONS {
            let places = 0..recorded.calls.len().max(recorded.sights.len());
            let spoilt: Vec<History> = places
                .filter_map(|at| {
                    let mut history = recorded.clone();
                    spoil(&mut history, at).then_some(history)
                })
                .collect();
            let found = refused(&spoilt).into_iter().filter(|is| *is).count();
            println!("{name}: {found} of {}", spoilt.len());
            assert!(
                spoilt.len() >= 8 && found * 10 >= spoilt.len() * 9,
                "{name}"
            );
        }
    }

    #[test]
    fn it_is_formatted_and_go_has_nothing_to_say() {
        let (output, text) = said(&mut go(&["vet", "."]));
        assert!(output.status.success(), "{text}");
        let (_, unformatted) = said(Command::new("gofmt").args(["-l", "tests/porcupine"]));
        assert_eq!(unformatted, "");
    }
}
