//! How many instructions of the server a step takes, and in which of its functions: counted by
//! callgrind, so that two runs agree to a tenth of a percent however busy the machine is.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::bench::Bench;
use crate::pairs::{Manner, pairs};
use crate::report::show;
use crate::resp::encode;
use crate::server::{Kind, Server};

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
    (
        "... making strings",
        "RM_CreateString + RM_CreateStringFromLongLong",
    ),
    ("... telling WATCH and caches", "RM_SignalModifiedKey"),
];

/// Counts, and prints a table of totals and one of where fairlock's go.
pub fn run(bench: &Bench) -> Result<()> {
    let mut rows = Vec::new();
    let mut ours = Counts::default();
    for (name, kind, step) in [
        (
            "FAIRLOCK.ACQUIRE NOWAIT, RELEASE",
            Kind::Module,
            Step::Pair(Manner::Fairlock),
        ),
        ("SET NX PX, DEL", Kind::Plain, Step::Pair(Manner::Set)),
        (
            "Redisson's scripts by EVALSHA, DEL",
            Kind::Plain,
            Step::Pair(Manner::EvalSha),
        ),
        (
            "the same, intercepted",
            Kind::Intercepting,
            Step::Pair(Manner::EvalSha),
        ),
        ("GET, SET without the module", Kind::Plain, Step::Traffic),
        ("GET, SET with the module", Kind::Module, Step::Traffic),
    ] {
        bench.say(name);
        let counts = count(bench, kind, step)?;
        rows.push((name, counts.total()));
        if step == Step::Pair(Manner::Fairlock) {
            ours = counts;
        }
    }
    bench.end();
    println!("| pair | instructions |\n|---|---|");
    for (name, instructions) in rows {
        println!("| {name} | {} |", show(instructions));
    }
    println!("\n| of ACQUIRE and RELEASE | instructions | functions |\n|---|---|---|");
    for (what, functions) in AREAS {
        println!(
            "| {what} | {} | `{functions}` |",
            show(ours.area(functions))
        );
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Pair(Manner),
    Traffic,
}

/// Instructions for one step, by function, with all that it calls.
#[derive(Debug, Default)]
struct Counts(BTreeMap<String, f64>);

impl Counts {
    fn total(&self) -> f64 {
        self.of("PROGRAM TOTALS")
    }

    fn of(&self, function: &str) -> f64 {
        self.0.get(function).copied().unwrap_or(0.0)
    }

    /// Sums and differences of functions, as the table writes them.
    fn area(&self, functions: &str) -> f64 {
        let mut words = functions.split(' ');
        let mut sum = words.next().map_or(0.0, |first| self.of(first));
        while let (Some(sign), Some(function)) = (words.next(), words.next()) {
            let count = self.of(function);
            sum += if sign == "-" { -count } else { count };
        }
        sum
    }
}

fn count(bench: &Bench, kind: Kind, step: Step) -> Result<Counts> {
    let directory = tempfile::tempdir()?;
    let out = format!("--callgrind-out-file={}/out", directory.path().display());
    let by = [
        "valgrind",
        "-q",
        "--tool=callgrind",
        "--instr-atstart=no",
        &out,
    ];
    let mut server = Server::start_by(&by, kind, &["--hz", "1"])?;
    for script in [&bench.scripts.try_lock, &bench.scripts.unlock] {
        let _: String = server.run(&[b"SCRIPT", b"LOAD", &script.text])?;
    }
    let mut client = Client::connect(&server)?;
    let batches = batches(bench, step);
    // What is set up once is there before anything is counted.
    client.send(&batches, TIMES / 4)?;
    control(&server, "on")?;
    client.send(&batches, TIMES)?;
    control(&server, "off")?;
    server.shut_down()?;
    let counts = annotate(&directory.path().join("out"))?;
    if counts.total() <= 0.0 {
        bail!("callgrind has counted nothing");
    }
    Ok(counts)
}

/// Eight steps each.
fn batches(bench: &Bench, step: Step) -> Vec<(Vec<u8>, usize)> {
    match step {
        Step::Pair(manner) => pairs(manner, &bench.scripts, 1).into_batches(),
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

/// A client that sends one batch after the other, with so many lines in the answer.
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

fn control(server: &Server, instrumentation: &str) -> Result<()> {
    let pid = server.pid().to_string();
    let mut command = Command::new("callgrind_control");
    command
        .args(["-i", instrumentation, &pid])
        .stdout(Stdio::null());
    let status = command.stderr(Stdio::null()).status()?;
    if !status.success() {
        bail!("callgrind_control -i {instrumentation}: {status}");
    }
    Ok(())
}

fn annotate(out: &Path) -> Result<Counts> {
    let mut command = Command::new("callgrind_annotate");
    command.args(["--inclusive=yes", "--threshold=100"]);
    let output = command.arg(PathBuf::from(out)).output();
    let output = output.context("callgrind_annotate")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().filter_map(|line| {
        let (count, rest) = line.trim_start().split_once(" (")?;
        let count: f64 = count.replace(',', "").parse().ok()?;
        let (_, place) = rest.split_once(")  ")?;
        // FILE:FUNCTION [OBJECT], but for the sum of all.
        let function = place.split(" [").next()?;
        let function = function
            .rsplit_once(':')
            .map_or(function, |(_, function)| function);
        #[allow(clippy::cast_precision_loss)] // Far below 2^53.
        Some((function.to_owned(), count / TIMES as f64))
    });
    Ok(Counts(counts.collect()))
}
