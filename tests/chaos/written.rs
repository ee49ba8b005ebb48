//! Histories as files: JSON lines, for Porcupine and for people. The first says what run it was, and what was found;
//! then every call, fault, sight and stall in the order in which they ended.
//!
//! A file appears under its name when it is complete, and no name is given twice: many runs can write to one folder.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use fairlock_testing::Server;
use serde::Serialize;

use crate::checker::Violation;
use crate::history::{Call, Fault, History, Micros, Sight, Stall};

/// What the first line says of a run.
#[derive(Default, Serialize)]
pub struct Title {
    /// Name and version.
    server: String,
    /// Which kind of run it was.
    suite: String,
    seed: u64,
    /// How long faults were injected.
    milliseconds: u64,
}

#[derive(Serialize)]
struct First<'h> {
    #[serde(flatten)]
    title: &'h Title,
    found: Vec<String>,
    left_behind: &'h [String],
    scripted: &'h [usize],
    turn: Micros,
    resumed: bool,
}

/// Any other line. A stall has only its times.
#[derive(Serialize)]
#[serde(untagged)]
enum Event {
    Call(Call),
    Fault(Fault),
    Sight(Sight),
    Stall(Stall),
}

impl Event {
    fn end(&self) -> Micros {
        match self {
            Self::Call(call) => call.answered,
            Self::Fault(fault) => fault.to,
            Self::Sight(sight) => sight.to,
            Self::Stall(stall) => stall.to,
        }
    }
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

fn text(history: &History, found: &[Violation], title: &Title) -> String {
    let first = First {
        title,
        found: found.iter().map(|found| format!("{found:?}")).collect(),
        left_behind: &history.left_behind,
        scripted: &history.scripted,
        turn: history.turn,
        resumed: history.resumed,
    };
    let mut events: Vec<Event> = history.calls.iter().cloned().map(Event::Call).collect();
    events.extend(history.faults.iter().copied().map(Event::Fault));
    events.extend(history.sights.iter().cloned().map(Event::Sight));
    events.extend(history.stalls.iter().copied().map(Event::Stall));
    events.sort_by_key(Event::end);
    let mut text = serde_json::to_string(&first).expect("JSON") + "\n";
    for event in events {
        text += &serde_json::to_string(&event).expect("JSON");
        text.push('\n');
    }
    text
}
