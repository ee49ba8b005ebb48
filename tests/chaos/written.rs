//! Histories as files: JSON lines, for other checkers and for people. `tests/porcupine/README.md` has the format.
//!
//! A file appears under its name when it is complete, and no name is given twice: many runs can write to one folder.

use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use fairlock_testing::Server;

use crate::checker::Violation;
use crate::history::{ANY, Answer, Call, Fault, Harm, History, Limit, Part, Request, Sight, Way};

/// What the first line says of a run.
pub struct Title {
    /// Name and version.
    pub server: String,
    /// Which kind of run it was.
    pub suite: String,
    pub seed: u64,
    /// How long faults were injected.
    pub milliseconds: u64,
}

impl Title {
    pub fn new(server: &Server, suite: &str, seed: u64, milliseconds: u64) -> Self {
        let valkey = server.info("server", "valkey_version");
        let server = if valkey.is_empty() {
            format!("redis-{}", server.info("server", "redis_version"))
        } else {
            format!("valkey-{valkey}")
        };
        Self {
            server,
            suite: suite.to_lowercase(),
            seed,
            milliseconds,
        }
    }
}

/// Writes a history into a folder; where it is.
pub fn write(history: &History, found: &[Violation], title: &Title, folder: &Path) -> PathBuf {
    std::fs::create_dir_all(folder).expect("the folder of the histories");
    let prefix = format!("chaos-{}-{}-{}-", title.suite, title.server, title.seed);
    let mut named = tempfile::Builder::new();
    let named = named.prefix(&prefix).suffix(".part").tempfile_in(folder);
    let mut file = named.expect("a file beside the other histories");
    let text = text(history, found, title);
    file.write_all(text.as_bytes()).expect("written");
    let path = file.path().with_extension("jsonl");
    file.persist_noclobber(&path).expect("a new name");
    path
}

/// The title, what was found, what was left behind, and then a line for everything that happened, in the order in
/// which it ended.
fn text(history: &History, found: &[Violation], title: &Title) -> String {
    let mut happened: Vec<(u64, Line)> = Vec::new();
    happened.extend(history.calls.iter().map(|of| (of.answered, call(of))));
    happened.extend(history.sights.iter().map(|of| (of.to, sight(of))));
    happened.extend(history.faults.iter().map(|of| (of.to, fault(of))));
    let stalls = history.stalls.iter();
    happened.extend(stalls.map(|of| (of.to, Line::of("fault", "stall").during(of.from, of.to))));
    happened.sort_by_key(|(at, _)| *at);
    let found = found.iter();
    let found = found.map(|found| Line::of("found", &format!("{found:?}")));
    let left = history.left_behind.iter();
    let left = left.map(|what| Line::of("left behind", what));
    let lines = [first(history, title)].into_iter().chain(found).chain(left);
    let lines = lines.chain(happened.into_iter().map(|(_, line)| line));
    lines.map(|line| line.0 + "}\n").collect()
}

fn first(history: &History, title: &Title) -> Line {
    Line::of("history", "fairlock chaos 1")
        .text("server", &title.server)
        .text("suite", &title.suite)
        .plain("seed", title.seed)
        .plain("milliseconds", title.milliseconds)
        .text("commit", &commit())
        .plain("turn", history.turn)
        .plain("scripted", list(&history.scripted))
}

/// The commit that the suite runs at, with a mark if the tree has changes.
fn commit() -> String {
    let mut git = Command::new("git");
    git.current_dir(env!("CARGO_MANIFEST_DIR"));
    git.args([
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ]);
    let said = git.output().ok().filter(|output| output.status.success());
    let said = said.and_then(|output| String::from_utf8(output.stdout).ok());
    said.map_or("unknown".to_owned(), |text| text.trim().to_owned())
}

fn call(call: &Call) -> Line {
    let line = Line::of("call", name_of(&call.request))
        .plain("client", call.client)
        .plain("lock", call.lock)
        .plain("attempt", call.attempt)
        .during(call.invoked, call.answered)
        .plain("unread", call.unread);
    let line = arguments(line, &call.request);
    match &call.answer {
        Answer::Granted(token) => line.text("answer", "granted").maybe("got", *token),
        Answer::NotNow => line.text("answer", "not now"),
        Answer::Left(holds) => line.text("answer", "left").plain("holds", holds),
        Answer::NotHeld => line.text("answer", "not held"),
        Answer::Done => line.text("answer", "done"),
        Answer::Lost => line.text("answer", "lost"),
        Answer::Never => line.text("answer", "never"),
        Answer::Refused(error) => line.text("answer", "refused").text("error", error),
    }
}

fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Acquire { .. } => "acquire",
        Request::Release { .. } => "release",
        Request::Renew { .. } => "renew",
        Request::Cancel { .. } => "cancel",
        Request::Close => "close",
    }
}

fn arguments(line: Line, request: &Request) -> Line {
    match *request {
        Request::Acquire {
            way,
            lease,
            session,
            once,
            wait,
            limit,
        } => line
            .text("way", way_of(way))
            .plain("lease", lease)
            .plain("session", session)
            .plain("once", once)
            .maybe("wait", wait)
            .plain("limit", limit_of(limit)),
        Request::Release { token } => line.maybe("token", token),
        Request::Renew { lease } => line.plain("lease", lease),
        Request::Cancel { owner } => line.plain("owner", owner),
        Request::Close => line,
    }
}

fn way_of(way: Way) -> &'static str {
    match way {
        Way::Blocked => "blocked",
        Way::Polling => "polling",
        Way::Trying => "trying",
        Way::Script => "script",
        Way::Transaction => "transaction",
    }
}

/// As QUEUE says it: 0 is SHARED without a limit.
fn limit_of(limit: Limit) -> Limit {
    if limit == ANY { 0 } else { limit }
}

fn sight(sight: &Sight) -> Line {
    Line::of("sight", "keys")
        .plain("lock", sight.lock)
        .during(sight.from, sight.to)
        .plain("holders", list(&sight.holders))
        .plain("queue", list(&sight.queue))
}

fn fault(fault: &Fault) -> Line {
    let line = |name| Line::of("fault", name).during(fault.from, fault.to);
    match fault.harm {
        Harm::Kill { lost_since } => line("kill").maybe("lost_since", lost_since),
        Harm::Pause => line("pause"),
        Harm::ClientKill { client } => line("client kill").plain("client", client),
        Harm::HalfOpen { client } => line("half open").plain("client", client),
        Harm::SlowReader { client } => line("slow reader").plain("client", client),
        Harm::ClockStep { seconds } => line("clock step").plain("seconds", seconds),
        Harm::FlushAll => line("flushall"),
        Harm::Delete { lock, key } => line("delete").plain("lock", lock).text("key", part_of(key)),
        Harm::Break { lock, client } => line("break").plain("lock", lock).maybe("client", client),
        Harm::Config { option, value } => {
            line("config").text("option", option).text("value", value)
        }
        Harm::OutOfMemory => line("out of memory"),
        Harm::RewriteAof => line("rewrite aof"),
        Harm::Snapshot => line("snapshot"),
        Harm::Failover => line("failover"),
    }
}

fn part_of(part: Part) -> &'static str {
    match part {
        Part::Lock => "lock",
        Part::Queue => "queue",
        Part::Deadlines => "deadlines",
        Part::Token => "token",
        Part::Shared => "shared",
    }
}

fn list(numbers: &[usize]) -> String {
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("[{}]", numbers.join(","))
}

/// An object of JSON on one line, without its end.
struct Line(String);

impl Line {
    fn of(name: &str, value: &str) -> Self {
        Self(format!("{{\"{name}\":{}", quoted(value)))
    }

    /// A number, a truth value or a list.
    fn plain(self, name: &str, value: impl Display) -> Self {
        Self(format!("{},\"{name}\":{value}", self.0))
    }

    fn maybe(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.plain(name, value),
            None => self,
        }
    }

    fn text(self, name: &str, value: &str) -> Self {
        self.plain(name, quoted(value))
    }

    fn during(self, from: u64, to: u64) -> Self {
        self.plain("from", from).plain("to", to)
    }
}

fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|char| match char {
        '"' | '\\' => format!("\\{char}"),
        char if char.is_control() => format!("\\u{:04x}", u32::from(char)),
        char => char.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Stall;

    #[test]
    fn a_history_is_written_as_its_readme_says() {
        let history = History {
            calls: vec![Call {
                client: 3,
                lock: 1,
                attempt: 7,
                request: Request::Acquire {
                    way: Way::Blocked,
                    lease: 4_000_000,
                    session: false,
                    once: true,
                    wait: None,
                    limit: ANY,
                },
                invoked: 2,
                answered: 8,
                unread: 0,
                answer: Answer::Granted(Some(55)),
            }],
            faults: vec![Fault {
                harm: Harm::Kill {
                    lost_since: Some(4),
                },
                from: 9,
                to: 10,
            }],
            sights: vec![Sight {
                lock: 0,
                from: 6,
                to: 7,
                holders: vec![3, 5],
                queue: vec![],
            }],
            stalls: vec![Stall { from: 1, to: 5 }],
            left_behind: vec!["a \"key\"\n".to_owned()],
            turn: 3000,
            ..History::default()
        };
        let title = Title {
            server: "redis-7.0.15".to_owned(),
            suite: "always".to_owned(),
            seed: 4,
            milliseconds: 9,
        };
        let text = text(&history, &[Violation::Crash], &title);
        let (first, rest) = text.split_once('\n').expect("a first line");
        let begin = r#"{"history":"fairlock chaos 1","server":"redis-7.0.15","suite":"always","seed":4,"milliseconds":9,"commit":""#;
        assert!(first.starts_with(begin), "{first}");
        assert!(
            first.ends_with(r#"","turn":3000,"scripted":[]}"#),
            "{first}"
        );
        let expected = [
            r#"{"found":"Crash"}"#,
            r#"{"left behind":"a \"key\"\u000a"}"#,
            r#"{"fault":"stall","from":1,"to":5}"#,
            r#"{"sight":"keys","lock":0,"from":6,"to":7,"holders":[3,5],"queue":[]}"#,
            concat!(
                r#"{"call":"acquire","client":3,"lock":1,"attempt":7,"from":2,"to":8,"unread":0,"way":"blocked","#,
                r#""lease":4000000,"session":false,"once":true,"limit":0,"answer":"granted","got":55}"#
            ),
            r#"{"fault":"kill","from":9,"to":10,"lost_since":4}"#,
        ];
        assert_eq!(rest, expected.join("\n") + "\n");
    }

    #[test]
    fn two_histories_of_one_seed_lie_beside_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let title = Title {
            server: "s".to_owned(),
            suite: "always".to_owned(),
            seed: 4,
            milliseconds: 9,
        };
        let write = || write(&History::default(), &[], &title, folder.path());
        let paths = [write(), write()];
        assert_ne!(paths[0], paths[1]);
        for path in paths {
            let text = std::fs::read_to_string(path).expect("a history");
            assert!(text.starts_with("{\"history\":"), "{text}");
        }
    }
}
