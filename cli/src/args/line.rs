//! Reads a command line, and says where the `--` of `exec` is missing.

use std::ffi::OsString;

use clap::Parser as _;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Args, Subcommand};

impl Args {
    /// Reads a command line, the program's name first.
    pub fn read(line: &[OsString]) -> Result<Self, clap::Error> {
        Self::try_parse_from(line).map_err(|mut error| {
            if let Some(command) = command_without_dashes(line, &error) {
                let tip = format!("the command comes after '--': '-- {command}'");
                let tip = vec![StyledStr::from(tip)];
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tip));
            }
            error
        })
    }
}

/// The first word of a command that `exec` would run if `--` stood before it.
fn command_without_dashes<'a>(line: &[OsString], error: &'a clap::Error) -> Option<&'a str> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    // What begins with a dash is an option, mistyped.
    if error.kind() != ErrorKind::UnknownArgument || word.starts_with('-') {
        return None;
    }
    let is_missing_before = |at: usize| {
        let (before, after) = line.split_at(at);
        let dashes = [OsString::from("--")];
        let corrected = before.iter().chain(&dashes).chain(after);
        let args = Args::try_parse_from(corrected);
        args.is_ok_and(|args| matches!(args.command, Subcommand::Exec(_)))
    };
    let mut places =
        (0..line.len()).filter(|at| line.get(*at).is_some_and(|other| other == word.as_str()));
    let has_dashes = line.iter().any(|word| word == "--");
    (!has_dashes && places.any(is_missing_before)).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Args::read(&line).expect_err("it is no command line");
        error.to_string()
    }

    #[test]
    fn exec_without_dashes_is_told_where_they_belong() {
        for (line, command) in [
            ("fairlock exec k true", "true"),
            ("fairlock exec true true", "true"),
            ("fairlock exec k --wait 0 sleep 5", "sleep"),
            ("fairlock exec --wait 0 k ./report --into d", "./report"),
            ("fairlock --url redis://h exec k echo --wait", "echo"),
        ] {
            let tip = format!("tip: the command comes after '--': '-- {command}'\n");
            let refusal = refusal(line);
            assert!(refusal.contains(&tip), "{line}: {refusal}");
        }
    }

    #[test]
    fn dashes_are_suggested_only_where_they_are_missing() {
        for line in [
            "fairlock exec k --wiat 0 -- true",
            "fairlock exec k --wiat 0",
            "fairlock exec k other -- true",
            "fairlock exec k --wait 0",
            "fairlock exec k --wait ten true",
            "fairlock info k other",
            "fairlock sell",
        ] {
            let refusal = refusal(line);
            assert!(!refusal.contains("comes after"), "{line}: {refusal}");
        }
    }
}
