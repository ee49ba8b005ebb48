//! `fairlock completions`.

use std::process::Command;

use crate::program::Program;

const SUBCOMMANDS: [&str; 7] = [
    "exec",
    "top",
    "locks",
    "info",
    "break",
    "metrics",
    "completions",
];

fn script(shell: &str) -> String {
    let ended = Program::ended(1, &["completions", shell]);
    assert_eq!((ended.code, ended.errors.as_str()), (0, ""), "{shell}");
    ended.out
}

#[test]
fn each_shell_learns_of_each_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = script(shell);
        for name in SUBCOMMANDS {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
}

/// What bash offers for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    let ask = r#"eval "$1"
        shift
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        $(complete -p fairlock | sed 's/.*-F \([^ ]*\).*/\1/') fairlock "${@: -1}" "${@: -2:1}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let output = Command::new("bash")
        .args(["--norc", "-c", ask, "bash", &script("bash")])
        .args(words)
        .output()
        .expect("bash");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    assert_eq!(offered(&["fairlock", "me"]), ["metrics"]);
    assert_eq!(offered(&["fairlock", "exec", "k", "--on"]), ["--on-loss"]);
    let values = offered(&["fairlock", "exec", "k", "--on-loss", ""]);
    assert_eq!(values, ["terminate", "ignore"]);
}
