//! How many instructions of the server a step takes, and in which of its functions: counted by
//! callgrind, so that two runs agree to a tenth of a percent however busy the machine is.
//!
//! - here: uncontended pairs, and other clients' traffic;
//! - [`hand_off`]: a lock that many clients want;
//! - [`callgrind`]: a server that is counted.

mod callgrind;
mod hand_off;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use anyhow::{Result, bail};

use crate::bench::{Bench, say};
use crate::pairs::{Manner, pairs};
use crate::report::show;
use crate::resp::encode;
use crate::server::{Kind, Server};

use callgrind::{Callgrind, Counts};

/// How often each is counted.
const TIMES: usize = 2_000;

/// What takes the time of a pair: functions of the server, with all that they call.
const AREAS: [(&str, &str); 12] = [
    (
        "reading and parsing commands",
        "readQueryFromClient - processCommand",
    ),
    (
        "the server around a command",
        "processCommand - RedisModuleCommandDispatcher",
    ),
    (
        "the module, with all that it calls",
        "RedisModuleCommandDispatcher",
    ),
    ("... replicating", "RM_Replicate"),
    ("... opening keys", "RM_OpenKey"),
    ("... closing keys", "RM_CloseKey"),
    ("... key events", "RM_NotifyKeyspaceEvent"),
    ("... setting a field of the hash", "RM_HashSet"),
    ("... deleting the lock", "RM_DeleteKey"),
    ("... setting expiries", "RM_SetAbsExpire"),
    ("... making strings", "RM_CreateString"),
    ("... telling WATCH and caches", "RM_SignalModifiedKey"),
];

/// Counts, and prints a table of totals, one of where fairlock's go, and one of hand-offs: the rows whose names
/// contain `only`.
pub fn run(bench: &Bench, only: &str) -> Result<()> {
    let mut rows = Vec::new();
    let [mut exclusive, mut shared] = [Counts::default(), Counts::default()];
    for (name, kind, step) in [
        (
            "FAIRLOCK.ACQUIRE NOWAIT, RELEASE",
            Kind::Module,
            Step::Pair(Manner::Fairlock),
        ),
        (
            "ACQUIRE SHARED NOWAIT, RELEASE, beside another reader",
            Kind::Module,
            Step::Shared,
        ),
        ("SET NX PX, DEL", Kind::Plain, Step::Pair(Manner::Set)),
        (
            "Redisson's scripts by EVALSHA, DEL",
            Kind::Plain,
            Step::Pair(Manner::Redisson),
        ),
        (
            "the same, the module loaded and interception off",
            Kind::Module,
            Step::Pair(Manner::Redisson),
        ),
        (
            "the same, intercepted",
            Kind::Intercepting,
            Step::Pair(Manner::Redisson),
        ),
        ("GET, SET without the module", Kind::Plain, Step::Traffic),
        ("GET, SET with the module", Kind::Module, Step::Traffic),
    ] {
        if !name.contains(only) {
            continue;
        }
        say(name);
        let counts = count(bench, kind, step)?;
        rows.push((name, counts.total()));
        match step {
            Step::Pair(Manner::Fairlock) => exclusive = counts,
            Step::Shared => shared = counts,
            _ => (),
        }
    }
    let hand_offs = hand_off::rows(bench, only)?;
    println!("| pair | instructions |\n|---|---|");
    for (name, instructions) in rows {
        println!("| {name} | {} |", show(instructions));
    }
    println!("\n| of ACQUIRE and RELEASE | instructions | SHARED | functions |\n|---|---|---|---|");
    for (what, functions) in AREAS {
        let [exclusive, shared] = [&exclusive, &shared].map(|counts| show(counts.area(functions)));
        println!("| {what} | {exclusive} | {shared} | `{functions}` |");
    }
    let [two, few, many] = hand_off::CLIENTS;
    println!(
        "\n| a hand-off | {two} clients | {few} clients | {many} clients |\n|---|---|---|---|"
    );
    for (name, instructions) in hand_offs {
        let [two, few, many] = instructions.map(show);
        println!("| {name} | {two} | {few} | {many} |");
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Pair(Manner),
    Shared,
    Traffic,
}

fn count(bench: &Bench, kind: Kind, step: Step) -> Result<Counts> {
    let callgrind = Callgrind::start(bench, kind)?;
    let mut client = Client::connect(&callgrind.server)?;
    if step == Step::Shared {
        let mut another = Vec::new();
        encode(&mut another, &reader(b"another"));
        client.send(&[(another, 1)], 8)?;
    }
    let batches = batches(bench, step);
    // One-time setup happens before counting.
    client.send(&batches, TIMES / 4)?;
    callgrind.count(true)?;
    client.send(&batches, TIMES)?;
    callgrind.count(false)?;
    callgrind.finish(TIMES)
}

/// Eight steps each.
fn batches(bench: &Bench, step: Step) -> Vec<(Vec<u8>, usize)> {
    match step {
        Step::Pair(manner) => pairs(manner, &bench.scripts, 1).into_batches(),
        Step::Shared => {
            let mut batch = Vec::new();
            for index in 0..8 {
                let owner = format!("8d2c4a43-5f0e-4c7b-9a86-3f2f6f2a0001:{index}");
                encode(&mut batch, &reader(owner.as_bytes()));
                encode(&mut batch, &[b"FAIRLOCK.RELEASE", LOCK, owner.as_bytes()]);
            }
            vec![(batch, 16)]
        }
        Step::Traffic => {
            let mut batch = Vec::new();
            for index in 0..8 {
                let key = format!("key:{index}");
                encode(&mut batch, &[b"SET", key.as_bytes(), b"0123456789"]);
                encode(&mut batch, &[b"GET", key.as_bytes()]);
            }
            vec![(batch, 24)]
        }
    }
}

const LOCK: &[u8] = b"lock";

/// The words by which an owner becomes a reader for ten minutes.
fn reader(owner: &[u8]) -> [&[u8]; 7] {
    let [acquire, shared, nowait] = [&b"FAIRLOCK.ACQUIRE"[..], b"SHARED", b"NOWAIT"];
    [acquire, LOCK, owner, shared, nowait, b"LEASE", b"600000"]
}

/// A client that sends one batch after the other; each answer has a number of lines.
struct Client {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Client {
    fn connect(server: &Server) -> Result<Self> {
        let stream = TcpStream::connect(server.address())?;
        stream.set_nodelay(true)?;
        let answers = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, answers })
    }

    fn send(&mut self, batches: &[(Vec<u8>, usize)], steps: usize) -> Result<()> {
        let mut line = String::new();
        for (batch, lines) in batches.iter().cycle().take(steps / 8) {
            self.stream.write_all(batch)?;
            for _ in 0..*lines {
                line.clear();
                self.answers.read_line(&mut line)?;
                if line.starts_with('-') {
                    bail!("{line}");
                }
            }
        }
        Ok(())
    }
}
