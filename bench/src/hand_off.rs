//! One lock passed on among many clients.

use anyhow::Result;

use crate::bench::{Bench, Contest, Sample, say};
use crate::crowd::{Crowd, Member};
use crate::postgres::{Postgres, installed};
use crate::report::{in_thousands, show, spread};
use crate::ring::gather;
use crate::server::{Kind, Server};

const SIZES: [u32; 5] = [2, 16, 100, 1_000, 10_000];
/// Of 1,000 clients of PostgreSQL each looks for a deadlock after a second of waiting, among all the others: that takes
/// minutes, and no hand-off happens meanwhile.
const MOST_OF_POSTGRES: u32 = 100;
const KEY: &str = "ring";

/// How clients get the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Blocked,
    Polling,
    Token,
    Redisson(Kind),
    OwnScripts,
    Retrying,
    Postgres,
}

const WAYS: [(&str, Way); 9] = [
    ("fairlock", Way::Blocked),
    ("fairlock, ENQUEUE", Way::Polling),
    ("BLPOP, RPUSH", Way::Token),
    ("Redisson's scripts", Way::Redisson(Kind::Plain)),
    ("... interception off", Way::Redisson(Kind::Module)),
    ("... intercepted", Way::Redisson(Kind::Intercepting)),
    ("the packages' scripts", Way::OwnScripts),
    ("redis-py's Lock", Way::Retrying),
    ("PostgreSQL's advisory lock", Way::Postgres),
];

/// What the picture shows.
const DRAWN: [Way; 5] = [
    Way::Blocked,
    Way::Token,
    Way::Redisson(Kind::Plain),
    Way::Retrying,
    Way::Postgres,
];

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let most = if bench.quick { 100 } else { 10_000 };
    let sizes: Vec<u32> = SIZES.into_iter().filter(|size| *size <= most).collect();
    let programs = installed().filter(|_| !bench.quick);
    if programs.is_none() {
        say(
            "PostgreSQL's advisory lock is left out: no PostgreSQL server is installed, or the run is quick.",
        );
    }
    let postgres = programs
        .map(|programs| Postgres::start(&programs))
        .transpose()?;
    let mut contests: Vec<[Contest; SIZES.len()]> = vec![Default::default(); WAYS.len()];
    for round in 1..=bench.rounds {
        for (place, clients) in sizes.iter().enumerate() {
            for ((name, way), contests) in WAYS.into_iter().zip(&mut contests) {
                say(&format!("{name}, {clients} clients, round {round}"));
                let sample = measure(bench, way, *clients, postgres.as_ref())?;
                if let Some(sample) = sample {
                    contests[place].push(sample);
                }
            }
        }
    }
    for ((name, way), contests) in WAYS.into_iter().zip(&contests) {
        let points = sizes
            .iter()
            .zip(contests)
            .map(|(size, of)| (f64::from(*size), of.rate.median()));
        let points: Vec<_> = points.filter(|(_, rate)| rate.is_finite()).collect();
        if DRAWN.contains(&way) && !points.is_empty() {
            bench.lines.push((name, points));
        }
    }
    report(bench, &sizes, &contests);
    Ok(())
}

/// Each on a new server: no client of another contest is left.
fn measure(
    bench: &Bench,
    way: Way,
    clients: u32,
    postgres: Option<&Postgres>,
) -> Result<Option<Sample>> {
    let kind = match way {
        Way::Redisson(kind) => kind,
        Way::Blocked | Way::Polling => Kind::Module,
        _ => Kind::Plain,
    };
    if way == Way::Postgres {
        let postgres = postgres.filter(|_| clients <= MOST_OF_POSTGRES);
        return postgres.map(|server| server.hand_off(clients)).transpose();
    }
    let mut server = bench.server(kind)?;
    let number = clients as usize;
    let sample = match way {
        Way::Blocked => among(bench, &mut server, |server| {
            gather::fairlock(server, KEY, number)
        }),
        Way::Polling => among(bench, &mut server, |server| {
            gather::polling(server, KEY, number)
        }),
        Way::OwnScripts => among(bench, &mut server, |server| {
            gather::by_scripts(server, KEY, number)
        }),
        Way::Token => among(bench, &mut server, |server| {
            gather::token(server, KEY, number)
        }),
        Way::Retrying => among(bench, &mut server, |server| {
            gather::retrying(server, KEY, clients)
        }),
        _ => among(bench, &mut server, |server| {
            gather::redisson(bench, server, KEY, number)
        }),
    };
    sample.map(Some)
}

fn among<M: Member>(
    bench: &Bench,
    server: &mut Server,
    gather: impl FnOnce(&mut Server) -> Result<Crowd<M>>,
) -> Result<Sample> {
    let mut crowd = gather(server)?;
    bench.measure(server, &mut crowd)
}

fn report(bench: &mut Bench, sizes: &[u32], contests: &[[Contest; SIZES.len()]]) {
    let sizes: Vec<String> = sizes
        .iter()
        .map(|size| in_thousands(&size.to_string()))
        .collect();
    let header: Vec<&str> = ["clients"]
        .into_iter()
        .chain(sizes.iter().map(String::as_str))
        .collect();
    let rows = |cell: &dyn Fn(usize, &Contest) -> String| -> Vec<Vec<String>> {
        let rows = WAYS.iter().zip(contests).map(|((name, _), contests)| {
            let cells = contests.iter().take(sizes.len()).enumerate();
            let cells = cells.map(|(place, contest)| cell(place, contest));
            [(*name).to_owned()].into_iter().chain(cells).collect()
        });
        rows.collect()
    };
    let ratio = |place: usize, contest: &Contest| show(contest.cpu.by(&contests[0][place].cpu));
    let text = "Hand-offs a second: each client releases the lock as soon as it has it, and asks again in the same write. \
                BLPOP and RPUSH pass one token. redis-py's Lock asks every 0.1 s, and waits as long after a release.";
    bench.report.table(
        "Hand-offs of one lock",
        text,
        &header,
        &rows(&|_, contest| spread(&contest.rate)),
    );
    let text =
        "Redisson's scripts are sent by EVALSHA. PostgreSQL's is that of its clients' processes.";
    bench.report.table(
        "CPU of a hand-off, by the kind of client",
        text,
        &header,
        &rows(&|_, contest| spread(&contest.cpu)),
    );
    let text = "The same ÷ that of fairlock, blocking.";
    bench
        .report
        .table("CPU ÷ fairlock's", text, &header, &rows(&ratio));
}
