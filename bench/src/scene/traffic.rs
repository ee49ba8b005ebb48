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
            // Differences of a percent show only in many short rounds: fluctuations of the machine last longer.
            let (number, window) = (bench.rounds * 6, bench.window / 6);
            rounds_of(bench, &mut servers, &mut contestants, number, window)?;
            rows.push(row(command, pipeline, &contestants));
        }
    }
    bench.report.table(
        "Unrelated traffic",
        &format!(
            "{CONNECTIONS} connections. The last columns are throughput ÷ that without the module, and CPU of the \
             three."
        ),
        &[
            "command",
            "in a write",
            "no module: commands a second",
            "interception off",
            "on",
            "CPU",
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

fn row(command: &str, pipeline: usize, contestants: &[Contestant<Batches>]) -> Vec<String> {
    let mut row = vec![command.to_owned(), pipeline.to_string()];
    let [plain, others @ ..] = contestants else {
        return row;
    };
    row.push(spread(&plain.rate));
    let ratio = |contestant: &Contestant<Batches>| show(contestant.rate.by(&plain.rate).median());
    row.extend(others.iter().map(ratio));
    let cpu = contestants
        .iter()
        .map(|contestant| show(contestant.cpu.median()));
    row.push(cpu.collect::<Vec<_>>().join(" / "));
    row
}
