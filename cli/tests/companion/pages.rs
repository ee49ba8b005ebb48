//! What the program and the pages say of it: help, manual, completions, command lines.

use std::fs;

use clap::Parser as _;
use fairlock_cli::args::Args;
use fairlock_testing::paths;

use crate::program::Program;

const ALL: &str = "exec top locks info break metrics completions";

#[test]
fn each_shell_learns_of_each_command_and_each_has_a_page_in_the_manual() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = Program::ended(1, &["completions", shell]).said();
        for name in ALL.split(' ').chain(["on-loss"]) {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
    let dir = tempfile::TempDir::new().expect("a directory");
    Program::ended(1, &["manual", dir.path().to_str().expect("UTF-8")]).said();
    let page = |name: &str| fs::read_to_string(dir.path().join(name)).expect("a page");
    for name in ALL.split(' ') {
        let page = page(&format!("fairlock-{name}.1"));
        assert!(page.contains("\n.SH DESCRIPTION\n"), "{page}");
    }
    let all = page("fairlock.1");
    let is_whole = all.contains("Exit codes:") && !all.contains("manual");
    assert!(is_whole, "{all}");
}

#[test]
fn the_help_has_the_exit_codes() {
    for args in [&["--help"][..], &["exec", "--help"]] {
        let help = Program::ended(1, args).said();
        for code in ["1", "64", "69", "75", "76", "126", "127"] {
            assert!(help.contains(&format!("\n  {code} ")), "{help}");
        }
    }
}

/// The program's command lines in a page's blocks of code.
fn command_lines(page: &str) -> impl Iterator<Item = &str> {
    let code = page.lines().filter_map(|line| line.strip_prefix("    "));
    let typed = code.map(|line| line.strip_prefix("$ ").unwrap_or(line));
    typed.filter(|line| line.starts_with("fairlock "))
}

#[test]
fn every_command_line_in_the_pages_is_understood() {
    let pages = ["README.md", "docs/companion.md", "docs/recipes.md"];
    let pages = pages.into_iter().chain(["docs/shared-locks.md"]);
    let read = |name| fs::read_to_string(paths::root().join(name)).expect("a page");
    let text: String = pages.map(read).collect();
    for line in command_lines(&text) {
        if let Err(error) = Args::try_parse_from(shlex::split(line).expect(line)) {
            panic!("{line}\n{error}");
        }
    }
    assert!(command_lines(&text).count() > 12);
}
