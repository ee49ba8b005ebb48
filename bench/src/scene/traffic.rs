//! What the module costs commands that have nothing to do with locks.

use anyhow::Result;

use crate::bench::{Bench, Contestant, rounds_of};
use crate::crowd::Crowd;
use crate::pairs::{Answer, Batches};
use crate::report::{show, spread};
use crate::resp::encode;
use crate::server::{Kind, Server};

const CONNECTIONS: usize = 50;

/// Servers by what they are started with.
const KINDS: [(&str, Kind); 3] = [
    ("no module", Kind::Plain),
    ("interception off", Kind::Module),
    ("interception on", Kind::Intercepting),
];

/// How many commands go in one write.
const PIPELINES: [usize; 2] = [1, 16];

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let mut rows = Vec::new();
    for command in ["GET", "SET"] {
        for pipeline in PIPELINES {
            let servers: Result<Vec<Server>> = KINDS
                .into_iter()
                .map(|(_, kind)| bench.server(kind, &[]))
                .collect();
            let mut servers = servers?;
            let mut contestants = Vec::new();
            for (index, ((name, _), server)) in KINDS.into_iter().zip(&mut servers).enumerate() {
                let crowd = crowd(server, command, pipeline)?;
                contestants.push(Contestant::new(name, index, crowd));
            }
            // Differences of a percent show in many short rounds: the machine's own moods last longer.
            let (number, window) = (bench.rounds * 6, bench.window / 6);
            rounds_of(bench, &mut servers, &mut contestants, number, window)?;
            rows.extend(report(bench, command, pipeline, &contestants));
        }
    }
    bench.report.table(
        "Unrelated traffic",
        &format!("{CONNECTIONS} connections send GET or SET, one or 16 in each write."),
        &[
            "command",
            "in a write",
            "server",
            "commands a second",
            "server CPU, µs each",
            "throughput ÷ no module",
            "CPU of no module ÷ this",
        ],
        rows,
    );
    Ok(())
}

fn crowd(server: &mut Server, command: &str, pipeline: usize) -> Result<Crowd<Batches>> {
    for number in 0..CONNECTIONS {
        let key = format!("key:{number}");
        let _: String = server.run(&[b"SET", key.as_bytes(), b"0123456789"])?;
    }
    let members = (0..CONNECTIONS).map(|number| {
        let key = format!("key:{number}");
        Batches::new(1, pipeline, &[Answer::Text], |out, _, _| {
            if command == "GET" {
                encode(out, &[b"GET", key.as_bytes()]);
            } else {
                encode(out, &[b"SET", key.as_bytes(), b"0123456789"]);
            }
        })
    });
    Crowd::connect(server.address(), members)
}

fn report(
    bench: &mut Bench,
    command: &str,
    pipeline: usize,
    contestants: &[Contestant<Batches>],
) -> Vec<Vec<String>> {
    let Some(plain) = contestants.first() else {
        return Vec::new();
    };
    let rows = contestants.iter().map(|contestant| {
        vec![
            command.to_owned(),
            pipeline.to_string(),
            contestant.name.to_owned(),
            spread(&contestant.rate),
            spread(&contestant.cpu),
            show(contestant.rate.by(&plain.rate).median()),
            show(plain.cpu.by(&contestant.cpu).median()),
        ]
    });
    let rows = rows.collect();
    for contestant in contestants.iter().skip(1) {
        let name = contestant.name;
        let write = match pipeline {
            1 => "one in each write".to_owned(),
            _ => format!("{pipeline} in each write"),
        };
        let what = format!("{command} throughput, {write}: {name} ÷ no module");
        let ratio = contestant.rate.by(&plain.rate);
        bench.report.at_least(&what, &ratio, 0.98);
    }
    rows
}
