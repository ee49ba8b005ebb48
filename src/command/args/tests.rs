use super::super::COMMANDS;
use super::*;

struct Anybody;

impl Caller for Anybody {
    fn in_script(&self) -> bool {
        false
    }

    fn in_cluster(&self) -> bool {
        false
    }

    fn connection(&self) -> Connection {
        7
    }
}

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

#[test]
fn every_option_is_read() {
    for option in COMMANDS.iter().flat_map(|command| command.options) {
        let words: [&[u8]; 2] = [b"5", b"5"];
        let mut cursor = Cursor {
            caller: &Anybody,
            arguments: &words[..],
            next: 0,
            command: "",
            option,
        };
        let read = cursor.read_option(&mut Call::default());
        assert_eq!(read, Ok(()), "{option}");
    }
}
