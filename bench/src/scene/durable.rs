//! Uncontended pairs where they are written to disk or sent to a replica.

use anyhow::Result;

use crate::bench::{Bench, Contestant, rounds};
use crate::pairs::{Batches, Manner};
use crate::report::{show, spread};
use crate::server::{Kind, Server};

use super::uncontended::crowd;

const AOF: [&str; 2] = ["--appendonly", "yes"];

/// In the order of the table's columns.
const CONTESTANTS: [(&str, Manner); 3] = [
    ("FAIRLOCK.ACQUIRE NOWAIT, RELEASE", Manner::Fairlock),
    ("SET NX PX, DEL", Manner::Set),
    ("Redisson's scripts by EVALSHA", Manner::EvalSha),
];

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let mut rows = Vec::new();
    for (mode, fsync) in [
        ("appendonly, everysec", Some("everysec")),
        ("appendonly, always", Some("always")),
        ("one replica", None),
    ] {
        let options: Vec<&str> = match fsync {
            Some(fsync) => AOF.into_iter().chain(["--appendfsync", fsync]).collect(),
            None => Vec::new(),
        };
        let mut servers = Vec::new();
        let mut replicas = Vec::new();
        let mut contestants = Vec::new();
        for (index, (name, manner)) in CONTESTANTS.into_iter().enumerate() {
            let kind = if manner == Manner::Fairlock {
                Kind::Module
            } else {
                Kind::Plain
            };
            let mut server = bench.server(kind, &options)?;
            if fsync.is_none() {
                replicas.push(replica(bench, &mut server)?);
            }
            contestants.push(Contestant::new(name, index, crowd(bench, &server, manner)?));
            servers.push(server);
        }
        rounds(bench, &mut servers, &mut contestants)?;
        let [fairlock, set, scripts] = &contestants[..] else {
            continue;
        };
        let ratio = |other: &Contestant<Batches>| show(fairlock.rate.by(&other.rate).median());
        let cpu = contestants
            .iter()
            .map(|contestant| show(contestant.cpu.median()));
        rows.push(vec![
            mode.to_owned(),
            spread(&fairlock.rate),
            ratio(set),
            ratio(scripts),
            cpu.collect::<Vec<_>>().join(" / "),
        ]);
    }
    bench.report.table(
        "With an append-only file or a replica",
        "The pairs of an uncontended lock: fairlock's, ÷ the others', and CPU of the three.",
        &[
            "server",
            "pairs a second",
            "÷ SET NX PX, DEL",
            "÷ Redisson's scripts by EVALSHA",
            "CPU",
        ],
        rows,
    );
    Ok(())
}

fn replica(bench: &Bench, master: &mut Server) -> Result<Server> {
    let port = master.address().port().to_string();
    let replica = bench.server(Kind::Plain, &["--replicaof", "127.0.0.1", &port])?;
    master.wait("connected_slaves", |replicas| replicas > 0.5)?;
    Ok(replica)
}
