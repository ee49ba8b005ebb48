//! The page of evidence names commits that a reader can look at.

use std::process::Command;

use super::pages::{root, text};

fn git(arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.args(arguments).current_dir(root()).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(said)
}

/// Why the history of this checkout cannot be asked, if it cannot.
fn no_history() -> Option<&'static str> {
    if !root().join(".git").exists() {
        return Some("it is no checkout");
    }
    match git(&["rev-parse", "--is-shallow-repository"]).as_deref() {
        Some("false\n") => None,
        Some(_) => Some("it is shallow"),
        None => Some("git does not read it"),
    }
}

#[test]
fn every_commit_that_the_page_of_evidence_names_is_in_the_history() {
    if let Some(why) = no_history() {
        println!("skipped: the history is not here: {why}");
        return;
    }
    let page = text(&root().join("docs/evidence.md"));
    let is_hash =
        |word: &&str| word.len() == 7 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = page.split(|letter: char| !letter.is_alphanumeric());
    let named: Vec<&str> = words.filter(is_hash).collect();
    assert!(named.len() > 10, "{named:?}");
    for commit in named {
        let found = git(&["merge-base", "--is-ancestor", commit, "HEAD"]);
        assert!(found.is_some(), "no ancestor of HEAD: {commit}");
    }
}
