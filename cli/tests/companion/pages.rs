//! The pages show command lines of the program. The program understands each of them.

use std::fs;

use clap::Parser as _;
use fairlock_cli::args::Args;
use fairlock_testing::paths;

/// The program's command lines in a page's blocks of code.
fn command_lines(page: &str) -> impl Iterator<Item = &str> {
    let code = page.lines().filter_map(|line| line.strip_prefix("    "));
    let typed = code.map(|line| line.strip_prefix("$ ").unwrap_or(line));
    typed.filter(|line| line.starts_with("fairlock "))
}

#[test]
fn every_command_line_in_the_pages_is_understood() {
    let mut understood = 0;
    for name in [
        "README.md",
        "docs/companion.md",
        "docs/recipes.md",
        "docs/shared-locks.md",
    ] {
        let page = fs::read_to_string(paths::root().join(name)).expect("a page");
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
