//! PostgreSQL's advisory lock beside a blocking hand-off.

use anyhow::Result;

use crate::bench::Bench;
use crate::measure::{Contest, Sample, hand_offs};
use crate::postgres::{Postgres, installed};
use crate::report::{POSTGRES, grouped, show, spread};
use crate::ring::gather;
use crate::server::Kind;

/// Clients on one lock. Of 1,000 clients each looks for a deadlock after a
/// second of waiting, among all the others: that takes minutes, and no hand-off happens meanwhile.
const SIZES: [u32; 3] = [2, 16, 100];

/// How many hand-offs are measured each time: a second of processor time, or more.
const TIMES: u32 = 24_000;

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    if bench.quick {
        // Setting up a database takes longer than all the rest of a quick run.
        return Ok(());
    }
    let Some(programs) = installed() else {
        bench.note("PostgreSQL's advisory lock was left out: no PostgreSQL server is installed.");
        return Ok(());
    };
    let postgres = Postgres::start(&programs)?;
    let (mut rows, mut line) = (Vec::new(), Vec::new());
    for clients in SIZES {
        let (theirs, ours) = compare(bench, &postgres, clients)?;
        let ratio = theirs.cpu.by(&ours.cpu);
        rows.push(vec![
            grouped(clients as usize),
            spread(&theirs.rate),
            spread(&ours.rate),
            spread(&theirs.cpu),
            spread(&ours.cpu),
            show(ratio.median()),
        ]);
        line.push((f64::from(clients), theirs.rate.median()));
        bench.report.instead(POSTGRES, clients as usize, &ratio);
    }
    bench.report.table(
        "PostgreSQL's advisory lock",
        "The same loop among sessions of PostgreSQL, run by pgbench. Its CPU is that of their processes.",
        &[
            "clients",
            "hand-offs a second, pg_advisory_lock",
            "FAIRLOCK.ACQUIRE, blocking",
            "CPU, pg_advisory_lock",
            "FAIRLOCK.ACQUIRE, blocking",
            "CPU ÷ fairlock",
        ],
        rows,
    );
    bench.lines.push(("PostgreSQL's advisory lock", line));
    Ok(())
}

fn compare(bench: &Bench, postgres: &Postgres, clients: u32) -> Result<(Contest, Contest)> {
    let (mut theirs, mut ours) = (Contest::default(), Contest::default());
    for round in 1..=bench.rounds.min(3) {
        bench.say(&format!(
            "PostgreSQL's advisory lock, {clients} clients, round {round}"
        ));
        theirs.push(postgres.hand_off(clients, TIMES)?);
        let mut server = bench.server(Kind::Module, &[])?;
        let mut crowd = gather::fairlock(&mut server, "ring", clients as usize)?;
        let measured = hand_offs(&server, &mut crowd, bench.window)?;
        ours.push(Sample {
            rate: measured.rate,
            cpu: measured.cpu,
        });
    }
    Ok((theirs, ours))
}
