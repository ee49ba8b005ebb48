//! Hand-offs of one lock among its clients, in a closed loop.

use std::time::Duration;

use anyhow::{Result, bail};

use super::callgrind::Callgrind;
use crate::bench::{Bench, say};
use crate::crowd::{Crowd, Member};
use crate::ring::gather;
use crate::server::{Kind, Server};

/// How many clients want the lock.
pub const CLIENTS: [usize; 3] = [2, 16, 100];
/// How many hand-offs are counted.
const TIMES: u64 = 400;
const KEY: &str = "ring";

/// What clients do, and the instructions of the server for a hand-off, for each number of clients.
pub type Row = (&'static str, [f64; CLIENTS.len()]);

/// Counts those whose names contain `only`.
pub fn rows(bench: &Bench, only: &str) -> Result<Vec<Row>> {
    let redisson = |server: &mut Server, clients| gather::redisson(bench, server, KEY, clients);
    let fairlock = |server: &mut Server, clients| gather::fairlock(server, KEY, clients);
    let token = |server: &mut Server, clients| gather::token(server, KEY, clients);
    let polling = |server: &mut Server, clients| gather::polling(server, KEY, clients);
    let all = [
        row(
            bench,
            only,
            "FAIRLOCK.ACQUIRE, RELEASE",
            Kind::Module,
            fairlock,
        )?,
        row(bench, only, "BLPOP, RPUSH", Kind::Plain, token)?,
        row(
            bench,
            only,
            "FAIRLOCK.ACQUIRE ENQUEUE, RELEASE",
            Kind::Module,
            polling,
        )?,
        row(
            bench,
            only,
            "Redisson's scripts by EVALSHA, DEL",
            Kind::Plain,
            redisson,
        )?,
        row(
            bench,
            only,
            "the same, the module loaded and interception off",
            Kind::Module,
            redisson,
        )?,
        row(
            bench,
            only,
            "the same, intercepted",
            Kind::Intercepting,
            redisson,
        )?,
    ];
    Ok(all.into_iter().flatten().collect())
}

fn row<M: Member>(
    bench: &Bench,
    only: &str,
    name: &'static str,
    kind: Kind,
    gather: impl Fn(&mut Server, usize) -> Result<Crowd<M>>,
) -> Result<Option<Row>> {
    if !name.contains(only) {
        return Ok(None);
    }
    let mut row = [0.0; CLIENTS.len()];
    for (instructions, clients) in row.iter_mut().zip(CLIENTS) {
        say(&format!("hand-offs among {clients}: {name}"));
        let mut callgrind = Callgrind::start(bench, kind)?;
        let crowd = gather(&mut callgrind.server, clients)?;
        *instructions = count(callgrind, crowd)?;
    }
    Ok(Some((name, row)))
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
