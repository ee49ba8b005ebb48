//! Hand-offs of one lock among its clients, in a closed loop.

use std::time::Duration;

use anyhow::{Result, bail};

use super::callgrind::Callgrind;
use crate::bench::Bench;
use crate::crowd::{Crowd, Member};
use crate::ring::gather;
use crate::server::Kind;

/// How many clients want the lock.
pub const CLIENTS: [usize; 3] = [2, 16, 100];
/// How many hand-offs are counted.
const TIMES: u64 = 400;
const KEY: &str = "ring";

/// What clients do, and the instructions of the server for a hand-off, for each number of clients.
pub type Row = (&'static str, [f64; CLIENTS.len()]);

/// Instructions for a hand-off among a number of clients.
type Measure = fn(&Bench, usize) -> Result<f64>;

const ROWS: [(&str, Measure); 6] = [
    ("FAIRLOCK.ACQUIRE, RELEASE", blocking),
    ("BLPOP, RPUSH", token),
    ("FAIRLOCK.ACQUIRE ENQUEUE, RELEASE", polling),
    ("Redisson's scripts by EVALSHA, DEL", |bench, clients| {
        scripts(bench, Kind::Plain, clients)
    }),
    (
        "the same, the module loaded and interception off",
        |bench, clients| scripts(bench, Kind::Module, clients),
    ),
    ("the same, intercepted", |bench, clients| {
        scripts(bench, Kind::Intercepting, clients)
    }),
];

/// Counts those whose names contain `only`; with `--clients`, only for that number of clients.
pub fn rows(bench: &Bench, only: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, measure) in ROWS.into_iter().filter(|(name, _)| name.contains(only)) {
        let mut row = [0.0; CLIENTS.len()];
        for (instructions, clients) in row.iter_mut().zip(CLIENTS) {
            if ![usize::MAX, clients].contains(&bench.most_clients) {
                continue;
            }
            bench.say(&format!("hand-offs among {clients}: {name}"));
            *instructions = measure(bench, clients)?;
        }
        rows.push((name, row));
    }
    Ok(rows)
}

fn blocking(bench: &Bench, clients: usize) -> Result<f64> {
    let mut callgrind = Callgrind::start(bench, Kind::Module)?;
    let crowd = gather::fairlock(&mut callgrind.server, KEY, clients)?;
    count(callgrind, crowd)
}

fn token(bench: &Bench, clients: usize) -> Result<f64> {
    let mut callgrind = Callgrind::start(bench, Kind::Plain)?;
    let crowd = gather::token(&mut callgrind.server, KEY, clients)?;
    count(callgrind, crowd)
}

fn polling(bench: &Bench, clients: usize) -> Result<f64> {
    let mut callgrind = Callgrind::start(bench, Kind::Module)?;
    let crowd = gather::polling(&mut callgrind.server, KEY, clients)?;
    count(callgrind, crowd)
}

fn scripts(bench: &Bench, kind: Kind, clients: usize) -> Result<f64> {
    let mut callgrind = Callgrind::start(bench, kind)?;
    let crowd = gather::redisson(bench, &mut callgrind.server, KEY, clients)?;
    count(callgrind, crowd)
}

fn count<M: Member>(callgrind: Callgrind, mut crowd: Crowd<M>) -> Result<f64> {
    // One-time setup happens before counting.
    let warm = crowd.done() + TIMES / 4;
    go_on(&mut crowd, warm)?;
    callgrind.count(true)?;
    let before = crowd.done();
    go_on(&mut crowd, before + TIMES)?;
    callgrind.count(false)?;
    let steps = usize::try_from(crowd.done() - before)?;
    drop(crowd);
    Ok(callgrind.finish(steps)?.total())
}

fn go_on<M: Member>(crowd: &mut Crowd<M>, until: u64) -> Result<()> {
    if !crowd.run_while(Duration::from_mins(5), |crowd| crowd.done() < until)? {
        bail!("{} of {until} hand-offs in five minutes", crowd.done());
    }
    Ok(())
}
