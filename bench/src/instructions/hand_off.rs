//! Hand-offs of one lock among 16 clients, in a closed loop.

use std::time::Duration;

use anyhow::{Result, bail};

use super::callgrind::Callgrind;
use crate::bench::Bench;
use crate::crowd::{Crowd, Member};
use crate::ring::gather;
use crate::server::Kind;

/// How many clients want the lock.
pub const CLIENTS: usize = 16;
/// How many hand-offs are counted.
const TIMES: u64 = 1_000;
const KEY: &str = "ring";

/// Instructions of the server for a hand-off, by what clients do.
pub fn rows(bench: &Bench) -> Result<Vec<(&'static str, f64)>> {
    let rows = [
        ("FAIRLOCK.ACQUIRE, RELEASE", blocking(bench)?),
        ("BLPOP, RPUSH", token(bench)?),
        ("FAIRLOCK.ACQUIRE ENQUEUE, RELEASE", polling(bench)?),
        (
            "Redisson's scripts by EVALSHA, DEL",
            scripts(bench, Kind::Plain)?,
        ),
        (
            "the same, the module loaded and interception off",
            scripts(bench, Kind::Module)?,
        ),
        ("the same, intercepted", scripts(bench, Kind::Intercepting)?),
    ];
    Ok(rows.into())
}

fn blocking(bench: &Bench) -> Result<f64> {
    bench.say("hand-offs, blocking");
    let mut callgrind = Callgrind::start(bench, Kind::Module)?;
    let crowd = gather::fairlock(&mut callgrind.server, KEY, CLIENTS)?;
    count(callgrind, crowd)
}

fn token(bench: &Bench) -> Result<f64> {
    bench.say("hand-offs, BLPOP");
    let mut callgrind = Callgrind::start(bench, Kind::Plain)?;
    let crowd = gather::token(&mut callgrind.server, KEY, CLIENTS)?;
    count(callgrind, crowd)
}

fn polling(bench: &Bench) -> Result<f64> {
    bench.say("hand-offs, ENQUEUE");
    let mut callgrind = Callgrind::start(bench, Kind::Module)?;
    let crowd = gather::polling(&mut callgrind.server, KEY, CLIENTS)?;
    count(callgrind, crowd)
}

fn scripts(bench: &Bench, kind: Kind) -> Result<f64> {
    bench.say("hand-offs, Redisson's scripts");
    let mut callgrind = Callgrind::start(bench, kind)?;
    let crowd = gather::redisson(bench, &mut callgrind.server, KEY, CLIENTS)?;
    count(callgrind, crowd)
}

fn count<M: Member>(callgrind: Callgrind, mut crowd: Crowd<M>) -> Result<f64> {
    // What is set up once is there before anything is counted.
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
