//! Taking a lock and giving it back without contention.

use anyhow::Result;

use crate::bench::{Bench, Contestant, rounds};
use crate::crowd::Crowd;
use crate::measure::Figure;
use crate::pairs::{Batches, Manner, PAIRS, pairs};
use crate::report::{ALONE, Goal, OWN_SCRIPTS, REDIS_PY, REDISSON, show, spread};
use crate::server::{Kind, Server};

/// Connections that send pairs all the time.
pub const CONNECTIONS: usize = 50;

/// The contestants: name, manner, and index of the server.
const CONTESTANTS: [(&str, Manner, usize); 9] = [
    ("FAIRLOCK.ACQUIRE NOWAIT, RELEASE", Manner::Fairlock, 1),
    ("SET NX PX, DEL", Manner::Set, 0),
    ("redis-py's Lock", Manner::RedisPy, 0),
    ("the packages' scripts", Manner::OwnScripts, 0),
    ("Redisson's scripts by EVALSHA", Manner::EvalSha, 0),
    ("the first on names that never come again", Manner::Fresh, 1),
    ("Redisson's scripts by EVAL", Manner::Eval, 0),
    ("the same by EVALSHA, intercepted", Manner::EvalSha, 2),
    ("the same by EVAL, intercepted", Manner::Eval, 2),
];

/// Clients that take locks and give them back in one way.
pub fn crowd(bench: &Bench, server: &Server, manner: Manner) -> Result<Crowd<Batches>> {
    let members = (0..CONNECTIONS).map(|number| pairs(manner, &bench.scripts, number));
    Crowd::connect(server.address(), members)
}

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let kinds = [Kind::Plain, Kind::Module, Kind::Intercepting];
    let servers: Result<Vec<Server>> = kinds
        .map(|kind| bench.server(kind, &[]))
        .into_iter()
        .collect();
    let mut servers = servers?;
    let mut contestants = Vec::new();
    for (name, manner, server) in CONTESTANTS {
        let Some(place) = servers.get(server) else {
            continue;
        };
        let crowd = crowd(bench, place, manner)?;
        contestants.push(Contestant::new(name, server, crowd));
    }
    rounds(bench, &mut servers, &mut contestants)?;
    report(bench, &contestants);
    Ok(())
}

fn report(bench: &mut Bench, contestants: &[Contestant<Batches>]) {
    let [fairlock, set, redis_py, own, evalsha, ..] = contestants else {
        return;
    };
    let ratio = |this: &Figure, other: &Figure| show(this.by(other).median());
    let rows = contestants.iter().map(|contestant| {
        vec![
            contestant.name.to_owned(),
            spread(&contestant.rate),
            spread(&contestant.cpu),
            ratio(&fairlock.rate, &contestant.rate),
            ratio(&contestant.cpu, &fairlock.cpu),
        ]
    });
    let text = format!(
        "{CONNECTIONS} connections send {PAIRS} pairs of acquisition and release in each write; Redisson's has the DEL \
         of a latch besides."
    );
    bench.report.table(
        "An uncontended lock",
        &text,
        &[
            "commands",
            "pairs a second",
            "CPU",
            "throughput: fairlock ÷ this",
            "CPU: this ÷ fairlock",
        ],
        rows.collect(),
    );
    for (name, other) in [
        (REDISSON, evalsha),
        (OWN_SCRIPTS, own),
        (REDIS_PY, redis_py),
    ] {
        let ratio = other.cpu.by(&fairlock.cpu);
        bench.report.instead(name, ALONE, &ratio);
    }
    let goal = Goal::AtMost(2.6, "[the floor](performance.md#the-floor)");
    let ratio = fairlock.cpu.by(&set.cpu);
    bench
        .report
        .floor("lock and unlock ÷ SET, DEL", ALONE, &ratio, goal);
}
