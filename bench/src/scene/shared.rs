//! Locks that several owners hold: readers, a semaphore, and what a step costs beside many holders.

use anyhow::Result;

use crate::bench::{Bench, Contestant, growth, rounds};
use crate::crowd::Crowd;
use crate::measure::{Contest, sample};
use crate::pairs::{Answer, Batches, NUMBER};
use crate::report::{grouped, show, spread};
use crate::resp::encode;
use crate::ring::blocking::Fairlock;
use crate::ring::gather;
use crate::server::{Kind, Server};
use crate::work;

const READERS: [usize; 4] = [2, 16, 100, 1_000];
/// Longer than the scene.
const LONG: &[u8] = b"3600000";

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    readers(bench)?;
    semaphore(bench)?;
    holders(bench)
}

/// Readers of one lock beside as many owners with a lock each.
fn readers(bench: &mut Bench) -> Result<()> {
    let mut rows = Vec::new();
    let most = if bench.quick { 100 } else { usize::MAX };
    for clients in READERS.into_iter().filter(|&clients| clients <= most) {
        let shared = bench.server(Kind::Module, &[])?;
        let own = bench.server(Kind::Module, &[])?;
        let members =
            (0..clients).map(|number| Fairlock::asking("lock", number, &[b"SHARED", b"NOWAIT"]));
        let readers = Crowd::connect(shared.address(), members)?;
        let members = (0..clients)
            .map(|number| Fairlock::asking(&format!("lock:{number}"), number, &[b"NOWAIT"]));
        let owners = Crowd::connect(own.address(), members)?;
        let mut contestants = [
            Contestant::new("readers of one lock", 0, readers),
            Contestant::new("owners, a lock each", 1, owners),
        ];
        rounds(bench, &mut [shared, own], &mut contestants)?;
        let [readers, owners] = &contestants;
        let ratio = readers.rate.by(&owners.rate);
        rows.push(vec![
            grouped(clients),
            spread(&readers.rate),
            spread(&owners.rate),
            show(ratio.median()),
            show(readers.cpu.median()),
            show(owners.cpu.median()),
        ]);
    }
    bench.report.table(
        "Readers of one lock",
        "Each client sends RELEASE and the next ACQUIRE in one write, so nearly all hold a lock all the time.",
        &[
            "clients",
            "readers, pairs a second",
            "a lock each, pairs a second",
            "readers ÷ a lock each",
            "CPU, readers",
            "a lock each",
        ],
        rows,
    );
    Ok(())
}

/// Ten holders at a time beside one.
fn semaphore(bench: &mut Bench) -> Result<()> {
    let clients = if bench.quick { 100 } else { 1_000 };
    let (mut limited, mut exclusive) = (Contest::default(), Contest::default());
    for round in 1..=bench.rounds.min(3) {
        bench.say(&format!("a semaphore, {clients} clients, round {round}"));
        let mut server = bench.server(Kind::Module, &[])?;
        let mut crowd = gather::limited(&mut server, "ring", clients, 10, &[b"SHARED", b"10"])?;
        limited.push(sample(&mut server, &mut crowd, bench.window)?);
        let mut server = bench.server(Kind::Module, &[])?;
        let mut crowd = gather::fairlock(&mut server, "ring", clients)?;
        exclusive.push(sample(&mut server, &mut crowd, bench.window)?);
    }
    let named = [
        ("at most 10 at a time (SHARED 10)", &limited),
        ("one at a time", &exclusive),
    ];
    let rows = named.map(|(name, contest)| {
        vec![
            name.to_owned(),
            spread(&contest.rate),
            spread(&contest.cpu),
            show(contest.rate.by(&exclusive.rate).median()),
        ]
    });
    let text = format!(
        "{} clients want one lock; each releases it as soon as it has it, and asks again in the same write.",
        grouped(clients)
    );
    bench.report.table(
        "A semaphore",
        &text,
        &["holders", "hand-offs a second", "CPU", "÷ one at a time"],
        rows.into(),
    );
    Ok(())
}

/// What is done to a lock that others share, all on one connection.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// An owner joins the holders, and releases.
    Leave,
    /// An owner joins the holders, and its lease ends.
    End,
}

const STEPS: [(Step, &str); 2] = [
    (Step::Leave, "join the holders and release"),
    (Step::End, "join the holders, and the lease ends"),
];

const HOLDERS: [usize; 3] = [10, 1_000, 10_000];

fn holders(bench: &mut Bench) -> Result<()> {
    let mut rows = Vec::new();
    for (step, name) in STEPS {
        let (mut servers, mut contestants) = (Vec::new(), Vec::new());
        for (index, number) in HOLDERS.into_iter().enumerate() {
            let server = held_by(bench, number)?;
            let crowd = Crowd::connect(server.address(), [steps(step)])?;
            contestants.push(Contestant::new(name, index, crowd));
            servers.push(server);
        }
        rows.push(growth(bench, name, &mut servers, &mut contestants)?);
    }
    bench.report.table(
        "The number of holders",
        "CPU of a step, by the number of others that hold the lock (SHARED).",
        &[
            "step",
            "10 holders",
            "1,000 holders",
            "10,000 holders",
            "most ÷ fewest",
        ],
        rows,
    );
    Ok(())
}

fn held_by(bench: &Bench, number: usize) -> Result<Server> {
    let server = bench.server(Kind::Module, &[])?;
    let joined = work::all(&server, number, |index, out| {
        join(out, format!("holder:{index}").as_bytes(), LONG);
    })?;
    drop(joined);
    Ok(server)
}

fn join(out: &mut Vec<u8>, owner: &[u8], lease: &[u8]) {
    let words = [&b"FAIRLOCK.ACQUIRE"[..], b"lock", owner];
    let shared = [&b"SHARED"[..], b"NOWAIT", b"LEASE", lease];
    encode(out, &[&words[..], &shared].concat());
}

fn steps(step: Step) -> Batches {
    // An owner that comes again before its lease has ended would only hold the lock once more.
    let owner = [b"newcomer:", &NUMBER[..]].concat();
    let batches = match step {
        Step::Leave => {
            let answers = [Answer::Positive, Answer::Is(0)];
            Batches::new(1, 8, &answers, |out, _, _| {
                join(out, &owner, LONG);
                encode(out, &[b"FAIRLOCK.RELEASE", b"lock", &owner]);
            })
        }
        Step::End => Batches::new(1, 8, &[Answer::Positive], |out, _, _| {
            join(out, &owner, b"1");
        }),
    };
    batches.numbered()
}
