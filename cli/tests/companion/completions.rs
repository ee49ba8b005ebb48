//! `fairlock completions`, and the manual.

use crate::program::Program;

const ALL: [&str; 7] = [
    "exec",
    "top",
    "locks",
    "info",
    "break",
    "metrics",
    "completions",
];

#[test]
fn each_shell_learns_of_each_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = Program::ended(1, &["completions", shell]).said();
        for name in ALL.into_iter().chain(["on-loss"]) {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
}

#[test]
fn each_command_has_a_page_in_the_manual() {
    let dir = tempfile::TempDir::new().expect("a directory");
    Program::ended(1, &["manual", dir.path().to_str().expect("UTF-8")]).said();
    let pages = std::fs::read_dir(dir.path()).expect("a folder");
    assert_eq!(pages.count(), ALL.len() + 1);
    for name in ALL.map(|name| format!("fairlock-{name}.1")) {
        let page = std::fs::read_to_string(dir.path().join(&name)).expect(&name);
        assert!(page.contains("\n.SH DESCRIPTION\n"), "{page}");
    }
    let all = std::fs::read_to_string(dir.path().join("fairlock.1")).expect("a page");
    assert!(
        all.contains("Exit codes:") && !all.contains("manual"),
        "{all}"
    );
}
