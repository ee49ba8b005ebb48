use super::super::COMMANDS;
use super::*;

#[test]
fn keywords_come_in_any_case() {
    assert!(is(b"nOwAiT", "NOWAIT"));
    assert!(!is(b"NOWAITS", "NOWAIT"));
}

#[test]
fn a_command_takes_the_options_in_its_syntax() {
    for command in COMMANDS {
        let words = command
            .docs
            .syntax
            .split(|letter: char| !letter.is_ascii_alphabetic());
        let keywords = words.filter(|word| word.starts_with(char::is_uppercase));
        assert!(
            keywords.eq(command.options.iter().copied()),
            "{}",
            command.name
        );
    }
}
