//! Histories as files: JSON lines, for Porcupine and for people. The first says what was found; then every call, fault,
//! sight and stall in the order in which they ended.
//!
//! A file appears under its name when it is complete, and no name is given twice: many runs can write to one folder.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::checker::Violation;
use crate::history::{Call, Fault, History, Micros, Sight, Stall};

#[derive(Serialize)]
struct First {
    found: Vec<String>,
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

/// Writes a history of a run of this name into a folder; where it is.
pub fn write(history: &History, found: &[Violation], run: &str, folder: &Path) -> PathBuf {
    std::fs::create_dir_all(folder).expect("the folder of the histories");
    let prefix = format!("chaos-{run}-");
    let mut named = tempfile::Builder::new();
    let named = named.prefix(&prefix).suffix(".part").tempfile_in(folder);
    let mut file = named.expect("a file beside the other histories");
    file.write_all(text(history, found).as_bytes())
        .expect("written");
    let path = file.path().with_extension("jsonl");
    file.persist_noclobber(&path).expect("a new name");
    path
}

fn text(history: &History, found: &[Violation]) -> String {
    let first = First {
        found: found.iter().map(|found| format!("{found:?}")).collect(),
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
