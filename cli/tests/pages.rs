//! The pages show command lines of the program. The program understands each of them.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use clap::Parser as _;
use fairlock_cli::args::Args;

/// The program's command lines in a page's blocks of code.
fn command_lines(page: &str) -> impl Iterator<Item = &str> {
    let code = page.lines().filter_map(|line| line.strip_prefix("    "));
    let typed = code.map(|line| line.strip_prefix("$ ").unwrap_or(line));
    typed.filter(|line| line.starts_with("fairlock "))
}

#[test]
fn every_command_line_in_the_pages_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut understood = 0;
    for name in [
        "README.md",
        "docs/companion.md",
        "docs/recipes.md",
        "docs/shared-locks.md",
    ] {
        let page = fs::read_to_string(root.join(name)).expect("a page");
        for line in command_lines(&page) {
            if let Err(error) = Args::try_parse_from(shlex::split(line).expect(line)) {
                panic!("{name}: {line}\n{error}");
            }
            understood += 1;
        }
    }
    assert!(
        understood > 12,
        "only {understood} command lines were found"
    );
}
