//! One lock passed on among many clients.

use anyhow::Result;

use crate::bench::{Bench, Contest};
use crate::postgres::{Postgres, installed};
use crate::report::{beside, in_thousands, spread};
use crate::ring::gather::{self, Gather};
use crate::server::{Kind, Server};

const SIZES: [u32; 5] = [2, 16, 100, 1_000, 10_000];
/// Of 1,000 clients of PostgreSQL each looks for a deadlock after a second of waiting, among all the others: that takes
/// minutes, and no hand-off happens meanwhile.
const MOST_OF_POSTGRES: u32 = 100;
/// How clients get the lock: from which server, and how they come together.
pub const WAYS: [(&str, Kind, Gather); 8] = [
    ("fairlock", Kind::Module, gather::fairlock),
    ("fairlock, ENQUEUE", Kind::Module, gather::polling),
    ("BLPOP, RPUSH", Kind::Plain, gather::token),
    ("Redisson's scripts", Kind::Plain, gather::redisson),
    ("... interception off", Kind::Module, gather::redisson),
    ("... intercepted", Kind::Intercepting, gather::redisson),
    ("the packages' scripts", Kind::Plain, gather::by_scripts),
    ("redis-py's Lock", Kind::Plain, gather::retrying),
];
const POSTGRES: &str = "PostgreSQL's advisory lock";

/// What the picture shows.
const DRAWN: [&str; 5] = [
    "fairlock",
    "BLPOP, RPUSH",
    "Redisson's scripts",
    "redis-py's Lock",
    POSTGRES,
];

type Contests = [Contest; SIZES.len()];

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let most = if bench.quick { 100 } else { 10_000 };
    let sizes: Vec<u32> = SIZES.into_iter().filter(|size| *size <= most).collect();
    let programs = installed().filter(|_| !bench.quick);
    if programs.is_none() {
        eprintln!(
            "PostgreSQL's advisory lock is left out: no PostgreSQL server is installed, or the run is quick.",
        );
    }
    let postgres = programs
        .map(|programs| Postgres::start(&programs))
        .transpose()?;
    let mut contests: Vec<(&str, Contests)> = Vec::new();
    contests.extend(WAYS.map(|(name, ..)| (name, Contests::default())));
    contests.push((POSTGRES, Contests::default()));
    for round in 1..=bench.rounds {
        for (place, clients) in sizes.iter().enumerate() {
            for ((name, kind, gather), (_, contests)) in WAYS.into_iter().zip(&mut contests) {
                eprintln!("{name}, {clients} clients, round {round}");
                // Each on a new server: no client of another contest is left.
                let mut server = Server::start(kind)?;
                let mut crowd = gather(&mut server, *clients)?;
                contests[place].push(bench.measure(&server, &mut crowd)?);
            }
            if let Some(postgres) = postgres.as_ref().filter(|_| *clients <= MOST_OF_POSTGRES) {
                eprintln!("{POSTGRES}, {clients} clients, round {round}");
                let sample = postgres.hand_off(*clients)?;
                contests[WAYS.len()].1[place].push(sample);
            }
        }
    }
    for (name, contests) in &contests {
        let contests = sizes.iter().zip(contests);
        let points = contests.map(|(size, of)| (f64::from(*size), of.rate.median()));
        let points: Vec<_> = points.filter(|(_, rate)| rate.is_finite()).collect();
        if DRAWN.contains(name) && !points.is_empty() {
            bench.lines.push((name, points));
        }
    }
    report(bench, &sizes, &contests);
    Ok(())
}

fn report(bench: &mut Bench, sizes: &[u32], contests: &[(&str, Contests)]) {
    let sizes: Vec<String> = sizes
        .iter()
        .map(|size| in_thousands(&size.to_string()))
        .collect();
    let header: Vec<&str> = ["clients"]
        .into_iter()
        .chain(sizes.iter().map(String::as_str))
        .collect();
    let rows = |cell: &dyn Fn(usize, &Contest) -> String| -> Vec<Vec<String>> {
        let rows = contests.iter().map(|(name, contests)| {
            let cells = contests.iter().take(sizes.len()).enumerate();
            let cells = cells.map(|(place, contest)| cell(place, contest));
            [(*name).to_owned()].into_iter().chain(cells).collect()
        });
        rows.collect()
    };
    let text = "Hand-offs a second: each client releases the lock as soon as it has it, and asks again in the same write. \
                BLPOP and RPUSH pass one token. redis-py's Lock asks every 0.1 s, and waits as long after a release.";
    bench.report.table(
        "Hand-offs of one lock",
        text,
        &header,
        &rows(&|_, contest| spread(&contest.rate)),
    );
    let text = "In brackets: ÷ that of fairlock. Redisson's scripts are sent by EVALSHA. Of PostgreSQL the processes that \
                serve clients are counted.";
    bench.report.table(
        "CPU of a hand-off",
        text,
        &header,
        &rows(&|place, contest| beside(&contest.cpu, &contests[0].1[place].cpu)),
    );
}
