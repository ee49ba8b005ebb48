//! What the program says of itself: help, manual, completions; and command lines that it refuses.

use std::fs;

use crate::program;

const ALL: &str = "exec top locks info break completions";

#[test]
fn each_shell_learns_of_each_command_and_each_has_a_page_in_the_manual() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = program::ended(1, format!("completions {shell}")).said();
        for name in ALL.split(' ').chain(["on-loss"]) {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
    let dir = tempfile::TempDir::new().expect("a directory");
    program::ended(1, format!("manual {}", dir.path().display())).said();
    let page = |name: &str| fs::read_to_string(dir.path().join(name)).expect("a page");
    for name in ALL.split(' ') {
        let page = page(&format!("fairlock-{name}.1"));
        assert!(page.contains("\n.SH DESCRIPTION\n"), "{page}");
    }
    assert!(!page("fairlock.1").contains("manual"));
    for page in [page("fairlock.1"), page("fairlock-exec.1")] {
        for code in ["1", "64", "69", "75", "76", "126", "127"] {
            assert!(page.contains(&format!("\n  {code} ")), "{page}");
        }
    }
}

#[test]
fn wrong_command_lines_are_refused_without_the_password() {
    for arguments in [
        "exec k",
        "exec k true",
        "exec '' -- true",
        "completions dos",
        "exec k --wait 10 -- true",
        "exec k --lease 0 -- true",
        "exec k --limit 0 -- true",
        "exec k --limit 1000001 -- true",
        "top --sort age",
        "info",
        "--url http://ann:secret@x top",
        "",
    ] {
        let ended = program::ended(1, arguments);
        ended.failed(64, " ");
        assert!(!ended.errors.contains("secret"), "{arguments}: {ended:?}");
    }
}
