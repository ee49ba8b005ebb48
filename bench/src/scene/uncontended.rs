//! Taking a lock and giving it back with nobody else about.

use anyhow::Result;

use crate::bench::{Bench, Contestant, rounds};
use crate::crowd::Crowd;
use crate::measure::Figure;
use crate::pairs::{Batches, Manner, PAIRS, pairs};
use crate::report::{show, spread};
use crate::server::{Kind, Server};

/// Connections that send pairs all the time.
pub const CONNECTIONS: usize = 50;

/// Who takes part, in which manner, on which of the servers.
const CONTESTANTS: [(&str, Manner, usize); 7] = [
    ("FAIRLOCK.ACQUIRE NOWAIT, RELEASE", Manner::Fairlock, 1),
    ("the same, on names that never come again", Manner::Fresh, 1),
    ("SET NX PX, DEL", Manner::Set, 0),
    ("Redisson's scripts by EVALSHA", Manner::EvalSha, 0),
    ("Redisson's scripts by EVAL", Manner::Eval, 0),
    ("the same by EVALSHA, intercepted", Manner::EvalSha, 2),
    ("the same by EVAL, intercepted", Manner::Eval, 2),
];

/// Clients that take locks and give them back in a manner.
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
    let [
        fairlock,
        fresh,
        set,
        evalsha,
        eval,
        native_evalsha,
        native_eval,
    ] = contestants
    else {
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
        "{CONNECTIONS} connections send {PAIRS} pairs in each write. A pair is an acquisition and a release; \
         fairlock's includes the fencing token,\nRedisson's the DEL of a latch that its client sends after \
         each unlock."
    );
    bench.report.table(
        "An uncontended lock",
        &text,
        &[
            "commands",
            "pairs a second",
            "server CPU, µs a pair",
            "throughput: fairlock ÷ this",
            "CPU: this ÷ fairlock",
        ],
        rows.collect(),
    );
    let report = &mut bench.report;
    let mut goal = |what: &str, this: &Figure, other: &Figure, wanted| {
        report.at_least(what, &this.by(other), wanted);
    };
    goal(
        "Lock/unlock throughput: fairlock ÷ Redisson's scripts (EVAL)",
        &fairlock.rate,
        &eval.rate,
        3.5,
    );
    goal(
        "Lock/unlock throughput: fairlock ÷ Redisson's scripts (EVALSHA)",
        &fairlock.rate,
        &evalsha.rate,
        2.5,
    );
    goal(
        "Lock/unlock throughput: fairlock ÷ SET NX PX and DEL",
        &fairlock.rate,
        &set.rate,
        0.6,
    );
    goal(
        "Lock/unlock CPU: names that come again ÷ names that never do",
        &fairlock.cpu,
        &fresh.cpu,
        0.9,
    );
    goal(
        "Lock/unlock CPU: Redisson's scripts (EVAL) ÷ fairlock",
        &eval.cpu,
        &fairlock.cpu,
        5.0,
    );
    goal(
        "Lock/unlock CPU: Redisson's scripts (EVALSHA) ÷ fairlock",
        &evalsha.cpu,
        &fairlock.cpu,
        4.0,
    );
    goal(
        "Throughput of Redisson's scripts (EVAL): interception on ÷ no module",
        &native_eval.rate,
        &eval.rate,
        2.5,
    );
    goal(
        "Throughput of Redisson's scripts (EVALSHA): interception on ÷ no module",
        &native_evalsha.rate,
        &evalsha.rate,
        2.5,
    );
}
