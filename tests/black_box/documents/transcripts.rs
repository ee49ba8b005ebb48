//! The documentation tells the truth: every transcript in it is typed into redis-cli again.
//!
//! A code block marked `redis` is a transcript. `ann> COMMAND` is what the client `ann` types, and
//! what follows is the answer, as redis-cli shows it. `...` says that there is none yet; it comes
//! later, at `ann: ANSWER`. The blocks of a page are one story, on a server of its own.
//!
//! Tokens differ from run to run, so only their order has to be right; times may differ by a little.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use fairlock_testing::paths::root;
use fairlock_testing::{Program, Server, wait_until};

use super::pages::{pages, text};

/// A number this great is a token.
const LEAST_TOKEN: i64 = 1_000_000_000_000_000;

/// A number this great may be a time, in milliseconds, and differ by as much as [`SLACK`].
const LEAST_TIME: i64 = 500;

const SLACK: u64 = 10_000;

/// One redis-cli.
struct Cli {
    program: Program,
    /// How many lines of answers were taken.
    taken: usize,
    /// It has subscribed or quit, and takes no more commands.
    is_closed: bool,
}

impl Cli {
    fn start(port: u16) -> Self {
        let mut command = Command::new("redis-cli");
        command.args(["--no-raw", "-p", &port.to_string()]);
        Self {
            program: Program::start(&mut command),
            taken: 0,
            is_closed: false,
        }
    }

    /// The next line of an answer, which is to be as `expected`.
    fn line(&mut self, expected: &str) -> String {
        let mut next = None;
        wait_until(expected, || {
            let printed = self.program.printed("out");
            let whole = printed
                .split_inclusive('\n')
                .filter_map(|line| line.strip_suffix('\n'));
            let mut answers = whole.filter(|line| !line.is_empty() && !is_remark(line));
            next = answers.nth(self.taken).map(str::to_owned);
            next.is_some()
        });
        self.taken += 1;
        next.expect("a line")
    }

    /// Checks that no answer has come that is not in the transcript, and types a command.
    fn type_in(&mut self, command: &str) {
        self.nothing_more();
        self.is_closed = command.contains("SUBSCRIBE ") || command == "QUIT";
        self.program.type_in(&format!("{command}\n"));
    }

    fn nothing_more(&mut self) {
        if !self.is_closed {
            self.program.type_in("ECHO that-is-all\n");
            let line = self.line("that-is-all");
            assert_eq!(line, "\"that-is-all\"", "more than the page says");
        }
    }
}

/// What redis-cli adds to the server's answer: `(1.60s)` where it took a while, and in some of its
/// versions that it is listening.
fn is_remark(line: &str) -> bool {
    if line.starts_with("Reading messages... ") {
        return true;
    }
    let time = line
        .strip_prefix('(')
        .and_then(|line| line.strip_suffix("s)"));
    time.is_some_and(|time| time.parse::<f64>().is_ok())
}

/// A line of a transcript.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// What a client types.
    Typed(&'a str, &'a str),
    /// The first line of an answer that comes late.
    Late(&'a str, &'a str),
    /// Another line of an answer.
    Answer(&'a str),
}

fn read(line: &str) -> Line<'_> {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    match (line.split_once("> "), line.split_once(": ")) {
        (Some((name, command)), _) if is_name(name) => Line::Typed(name, command),
        (_, Some((name, answer))) if is_name(name) => Line::Late(name, answer),
        _ => Line::Answer(line),
    }
}

/// This run's values of a page's tokens.
#[derive(Default)]
struct Tokens(BTreeMap<i64, i64>);

impl Tokens {
    /// Whether a token can be what the page says, given those before.
    fn fits(&mut self, page: i64, here: i64) -> bool {
        let below = self.0.range(..page).next_back();
        let above = self.0.range(page + 1..).next();
        let in_order = below.is_none_or(|(_, token)| *token < here)
            && above.is_none_or(|(_, token)| *token > here);
        in_order && *self.0.entry(page).or_insert(here) == here
    }

    /// The command with this run's tokens.
    fn put_into(&self, command: &str) -> String {
        let words = command.split(' ').map(|word| {
            let token = word.parse().ok().and_then(|token: i64| self.0.get(&token));
            token.map_or_else(|| word.to_owned(), ToString::to_string)
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Whether an answer is what the page says.
    fn is_alike(&mut self, page: &str, here: &str) -> bool {
        let number = |line: &str| -> Option<(String, i64)> {
            let text = || line.strip_suffix('"')?.split_once('"');
            let (start, number) = line.split_once("(integer) ").or_else(text)?;
            Some((start.to_owned(), number.parse().ok()?))
        };
        match (number(page), number(here)) {
            (Some((start, page)), Some((other, here))) if start == other => {
                if page >= LEAST_TOKEN && here >= LEAST_TOKEN {
                    return self.fits(page, here);
                }
                page == here || page >= LEAST_TIME && page.abs_diff(here) <= SLACK
            }
            _ => in_any_servers_words(page) == in_any_servers_words(here),
        }
    }
}

/// A line, reduced to its code if the text differs between servers: permission errors. The connection's own identity is
/// taken out.
fn in_any_servers_words(line: &str) -> String {
    const NOT_PERMITTED: &str = "(error) NOPERM ";
    if line.starts_with(NOT_PERMITTED) {
        return NOT_PERMITTED.to_owned();
    }
    without_identity(line)
}

/// A line without the connection's own identity, `"<uuid>:<number>"`, that may be in it.
fn without_identity(line: &str) -> String {
    let words = line.split('"').map(|word| {
        let uuid = word.split_once(':').map(|(uuid, _)| uuid);
        let is_identity =
            uuid.is_some_and(|uuid| uuid.len() == 36 && uuid.matches('-').count() == 4);
        if is_identity { "<identity>" } else { word }
    });
    words.collect::<Vec<_>>().join("\"")
}

/// A page as it is played.
struct Play {
    server: Server,
    clients: BTreeMap<String, Cli>,
    /// The clients without an answer yet.
    waiting: BTreeSet<String>,
    tokens: Tokens,
}

impl Play {
    fn client(&mut self, name: &str) -> &mut Cli {
        let port = self.server.port;
        let entry = self.clients.entry(name.to_owned());
        entry.or_insert_with(|| Cli::start(port))
    }

    fn play(&mut self, transcript: &[&str], place: &str) {
        let mut speaking = String::new();
        for line in transcript {
            match read(line) {
                Line::Typed(name, command) => {
                    name.clone_into(&mut speaking);
                    let command = self.tokens.put_into(command);
                    self.client(name).type_in(&command);
                }
                Line::Answer("...") => {
                    let blocked = format!("{place}: {line}");
                    self.waiting.insert(speaking.clone());
                    // All of them, in the order in which they began to wait.
                    let waiting = self.waiting.len();
                    wait_until(&blocked, || self.server.blocked() >= waiting);
                }
                Line::Late(name, answer) => {
                    name.clone_into(&mut speaking);
                    self.waiting.remove(name);
                    self.receive(name, answer, place);
                }
                Line::Answer(answer) => self.receive(&speaking, answer, place),
            }
        }
    }

    fn receive(&mut self, name: &str, answer: &str, place: &str) {
        let heard = self
            .client(name)
            .line(&format!("{place}, {name}: {answer}"));
        let alike = self.tokens.is_alike(answer, &heard);
        assert!(
            alike,
            "{place}, {name}: the page says\n{answer}\nthe server\n{heard}"
        );
    }
}

/// The transcripts of a page, each with the number of its first line.
fn transcripts(page: &str) -> Vec<(usize, Vec<&str>)> {
    let mut found = Vec::new();
    let mut inside = None;
    for (number, line) in page.lines().enumerate() {
        match &mut inside {
            None if line == "```redis" => inside = Some((number + 2, Vec::new())),
            Some(_) if line == "```" => found.extend(inside.take()),
            Some((_, lines)) if !line.is_empty() && !is_remark(line) => lines.push(line),
            _ => (),
        }
    }
    found
}

#[test]
fn every_transcript_is_what_a_server_says() {
    let mut played = 0;
    for path in pages() {
        let page = text(&path);
        let transcripts = transcripts(&page);
        if transcripts.is_empty() {
            continue;
        }
        let mut play = Play {
            server: Server::start(),
            clients: BTreeMap::new(),
            waiting: BTreeSet::new(),
            tokens: Tokens::default(),
        };
        for (number, transcript) in transcripts {
            let name = path.strip_prefix(root()).expect("its path");
            play.play(&transcript, &format!("{}:{number}", name.display()));
            played += 1;
        }
        for client in play.clients.values_mut() {
            client.nothing_more();
        }
    }
    assert!(played > 15, "only {played} transcripts were found");
}
