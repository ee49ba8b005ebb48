//! Taking a lock and giving it back without contention.

use anyhow::Result;

use crate::bench::{Bench, Contest};
use crate::crowd::Crowd;
use crate::pairs::{Manner, PAIRS, pairs};
use crate::report::{show, spread};
use crate::server::{Kind, Server};

/// Connections that send pairs all the time.
const CONNECTIONS: u32 = 50;

/// Who takes and gives back, how, and on which server.
pub const CONTESTANTS: [(&str, Manner, Kind); 6] = [
    (
        "FAIRLOCK.ACQUIRE NOWAIT, RELEASE",
        Manner::Fairlock,
        Kind::Module,
    ),
    ("SET NX PX, DEL", Manner::Set, Kind::Plain),
    ("redis-py's Lock", Manner::RedisPy, Kind::Plain),
    ("the packages' scripts", Manner::OwnScripts, Kind::Plain),
    (
        "Redisson's scripts by EVALSHA",
        Manner::Redisson,
        Kind::Plain,
    ),
    (
        "the same, intercepted",
        Manner::Redisson,
        Kind::Intercepting,
    ),
];

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let mut contests: [Contest; CONTESTANTS.len()] = Default::default();
    for round in 1..=bench.rounds {
        for ((name, manner, kind), contest) in CONTESTANTS.into_iter().zip(&mut contests) {
            eprintln!("{name}, round {round}");
            let server = Server::start(kind)?;
            let members = (0..CONNECTIONS).map(|number| pairs(manner, number));
            let mut crowd = Crowd::connect(server.address(), members)?;
            contest.push(bench.measure(&server, &mut crowd)?);
        }
    }
    let fairlock = &contests[0];
    let rows: Vec<Vec<String>> = CONTESTANTS
        .iter()
        .zip(&contests)
        .map(|((name, ..), contest)| {
            vec![
                (*name).to_owned(),
                spread(&contest.rate),
                spread(&contest.cpu),
                show(fairlock.rate.by(&contest.rate)),
                show(contest.cpu.by(&fairlock.cpu)),
            ]
        })
        .collect();
    bench.report.table(
        "An uncontended lock",
        &format!(
            "{CONNECTIONS} connections send {PAIRS} pairs of acquisition and release in each write; a pair of Redisson's \
             also has the DEL of a latch."
        ),
        &[
            "commands",
            "pairs a second",
            "CPU",
            "throughput: fairlock ÷ this",
            "CPU: this ÷ fairlock",
        ],
        &rows,
    );
    Ok(())
}
