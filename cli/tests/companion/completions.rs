//! `fairlock completions`.

use crate::program::Program;

#[test]
fn each_shell_learns_of_each_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = Program::ended(1, &["completions", shell]);
        assert_eq!((ended.code, ended.errors.as_str()), (0, ""), "{shell}");
        for name in [
            "exec", "top", "locks", "info", "break", "metrics", "on-loss",
        ] {
            assert!(ended.out.contains(name), "{shell}: {name}");
        }
    }
}
