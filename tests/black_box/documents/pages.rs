//! The documentation tells the truth: every transcript in it is typed into redis-cli again.
//!
//! A code block marked `redis` is a transcript. `ann> COMMAND` is what the client `ann` types, and
//! what follows is the answer, as redis-cli shows it. `...` says that there is none yet; it comes
//! later, at `ann: ANSWER`. The blocks of a page are one story, on a server of its own.
//!
//! Tokens differ from run to run, so only their order has to be right; times may differ by a little.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use fairlock_testing::paths::root;
use fairlock_testing::{Server, give_up, show, wait_until};

/// A number this great is a token.
const LEAST_TOKEN: i64 = 1_000_000_000_000_000;
/// A number this great may be a time, in milliseconds, and differ by as much as [`SLACK`].
const LEAST_TIME: i64 = 500;
const SLACK: u64 = 10_000;

/// One redis-cli.
struct Cli {
    process: Child,
    input: ChildStdin,
    output: Receiver<String>,
    /// It has subscribed or quit, and takes no more commands.
    is_closed: bool,
}

impl Cli {
    fn start(port: u16) -> Self {
        let mut process = Command::new("redis-cli")
            .args(["--no-raw", "-p", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-cli is installed");
        let input = process.stdin.take().expect("its input");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            for line in lines.filter(|line| !is_remark(line) && !line.is_empty()) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            process,
            input,
            output: receiver,
            is_closed: false,
        }
    }

    fn line(&self) -> String {
        let line = self.output.recv_timeout(give_up());
        line.unwrap_or_else(|_| "(no answer)".to_owned())
    }

    /// Checks that no answer has come that is not in the transcript, and types a command.
    fn type_in(&mut self, command: &str) {
        self.nothing_more();
        self.is_closed = command.contains("SUBSCRIBE ") || command == "QUIT";
        writeln!(self.input, "{command}").expect("redis-cli listens");
    }

    fn nothing_more(&mut self) {
        if !self.is_closed {
            writeln!(self.input, "ECHO that-is-all").expect("redis-cli listens");
            assert_eq!(self.line(), "\"that-is-all\"", "more than the page says");
        }
    }
}

impl Drop for Cli {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
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
        let heard = self.client(name).line();
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

/// All pages.
fn pages() -> Vec<PathBuf> {
    let folders = ["docs", "clients", "examples"];
    let mut pages: Vec<PathBuf> = folders.map(|name| files(&root().join(name), "md")).concat();
    pages.extend(["README.md", "CHANGELOG.md", "SECURITY.md"].map(|name| root().join(name)));
    pages
}

/// All files of a kind in a folder and those below.
fn files(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == kind) {
                files.push(path);
            }
        }
    }
    files
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("a page")
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

#[test]
fn every_command_has_a_page_that_says_what_the_server_says() {
    let (_server, mut client) = Server::connected();
    let commands = client.commands();
    let list = text(&root().join("docs/commands/README.md"));
    for command in &commands {
        // One page has both commands that intercepted scripts become.
        let name = command.to_lowercase().replace("evalsha", "eval");
        let path = root().join(format!("docs/commands/{name}.md"));
        let page = text(&path);
        assert!(list.contains(&format!("]({name}.md)")), "{name}");
        let docs = client.run(&format!("COMMAND DOCS fairlock.{command}"));
        for field in ["summary", "since", "complexity"] {
            let value = field_of(&docs, field);
            assert!(
                page.contains(&value),
                "{name}: the server says {field}: {value}"
            );
        }
    }
    assert!(commands.len() >= 12, "{commands:?}");
}

/// The calls that a page shows: code that is indented, in README behind the command's link.
fn calls(page: &str) -> Vec<String> {
    let indented = |line: &str| Some(line.strip_prefix("    FAIRLOCK.")?.to_owned());
    let linked = |line: &str| {
        let (name, rest) = line.strip_prefix("- [`FAIRLOCK.")?.split_once("`](")?;
        let (_, arguments) = rest.split_once(")`")?;
        Some([name, arguments.split('`').next()?].concat())
    };
    let call = |line| indented(line).or_else(|| linked(line));
    page.lines().filter_map(call).collect()
}

#[test]
fn pages_show_each_command_with_the_arguments_that_help_says() {
    let (_server, mut client) = Server::connected();
    let help = client.raw(&[b"FAIRLOCK.HELP"]).expect("a reply");
    let lines = help.as_sequence().expect("lines").iter().map(show);
    let call = |line: String| Some(line.strip_prefix("FAIRLOCK.")?.to_owned());
    let help: Vec<String> = lines.filter_map(call).collect();
    let mut shown = calls(&text(&root().join("README.md")));
    assert_eq!(shown.len(), 4, "{shown:?}");
    for page in files(&root().join("docs/commands"), "md") {
        shown.extend(calls(&text(&page)));
    }
    // HELP is silent about commands that clients never send.
    shown.retain(|call| !call.starts_with("EVAL"));
    for call in &shown {
        assert!(help.contains(call), "HELP has no {call}: {help:?}");
    }
    for call in &help {
        assert!(shown.contains(call), "no page has {call}");
    }
}

/// A field of COMMAND DOCS; the next field ends it.
fn field_of(docs: &str, field: &str) -> String {
    let start = docs.split(&format!("{field}, ")).nth(1).expect(field);
    let ends = ["since", "group", "complexity", "module", "arguments"];
    let ends = ends.map(|next| start.find(&format!(", {next}, ")).unwrap_or(start.len()));
    let value = &start[..ends.into_iter().min().expect("an end")];
    // The client library's way to show bytes.
    value.replace("\\'", "'")
}

#[test]
fn every_field_of_info_is_documented_and_no_other() {
    let server = Server::start();
    let info = server.connect().text("INFO fairlock");
    let page = text(&root().join("docs/monitoring.md"));
    let fields: Vec<&str> = info
        .lines()
        .filter_map(|line| line.strip_prefix("fairlock_")?.split(':').next())
        .collect();
    let documented: Vec<&str> = page
        .split("`fairlock_")
        .skip(1)
        .filter_map(|rest| rest.split('`').next())
        .collect();
    // `name_*` stands for many: all bounds of a histogram.
    let is = |documented: &str, field: &str| match documented.strip_suffix('*') {
        Some(start) => field.starts_with(start),
        None => documented == field,
    };
    for field in &fields {
        let found = documented.iter().any(|name| is(name, field));
        assert!(found, "not documented: {field}");
    }
    for name in &documented {
        let found = fields.iter().any(|field| is(name, field));
        assert!(found, "not in INFO: {name}");
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    for path in pages() {
        let (page, folder) = (text(&path), path.parent().expect("a folder"));
        let links = page.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let leads = file.contains("://") || folder.join(file).exists();
            assert!(leads, "{}: {link}", path.display());
        }
    }
}
