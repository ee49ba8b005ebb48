//! Real Redisson clients: what their users get from loading the module, and from interception.

use anyhow::Result;
use fairlock_testing::redisson::NEWEST;

use crate::bench::Bench;
use crate::jvm::{Jvm, Locks, Maker, Pairs};
use crate::measure::Figure;
use crate::report::{show, spread};
use crate::server::{Kind, Server};

const SERVERS: [Kind; 3] = [Kind::Plain, Kind::Module, Kind::Intercepting];

/// What is compared: its lock, and its server by its place among [`SERVERS`].
const CONTESTANTS: [(&str, Maker, usize); 4] = [
    ("getFairLock, no module", Maker::Fair, 0),
    ("getFairLock, interception off", Maker::Fair, 1),
    ("getFairLock, interception on", Maker::Fair, 2),
    ("getLock (not fair), no module", Maker::Plain, 0),
];

/// What threads do, and how much throughput interception is to gain.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    threads: usize,
    locks: Locks,
    wanted: Option<f64>,
}

const LOADS: [Load; 4] = [
    Load {
        name: "1 thread",
        threads: 1,
        locks: Locks::One,
        wanted: None,
    },
    Load {
        name: "8 threads on one lock",
        threads: 8,
        locks: Locks::One,
        wanted: Some(1.15),
    },
    Load {
        name: "64 threads on one lock",
        threads: 64,
        locks: Locks::One,
        wanted: Some(2.5),
    },
    Load {
        name: "64 threads, each with a lock of its own",
        threads: 64,
        locks: Locks::Own,
        wanted: Some(1.15),
    },
];

/// A module that does nothing may cost so much.
const LOADED: f64 = 0.97;

/// The figures of one server.
#[derive(Debug, Default)]
struct Contest {
    rate: Figure,
    cpu: Figure,
    scripts: Figure,
}

impl Contest {
    fn push(&mut self, measured: Pairs) {
        self.rate.push(measured.rate);
        self.cpu.push(measured.cpu);
        self.scripts.push(measured.scripts);
    }
}

/// What is known of one load.
type Contests = [Contest; CONTESTANTS.len()];

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    if bench.quick {
        // A JVM takes longer to warm up than a quick run may last.
        return Ok(());
    }
    let servers: Result<Vec<Server>> = SERVERS
        .iter()
        .map(|&kind| bench.server(kind, &[]))
        .collect();
    let mut servers = servers?;
    let mut jvm = Jvm::start(&servers)?;
    let mut loads: [Contests; LOADS.len()] = Default::default();
    // The compiler of the JVM is to be done before anything counts.
    round(bench, &mut jvm, &mut servers, 0, |_, _, _| ())?;
    for number in 1..=bench.rounds {
        let keep = |load: usize, contestant: usize, pairs| {
            let load = loads.get_mut(load);
            if let Some(contest) = load.and_then(|load| load.get_mut(contestant)) {
                contest.push(pairs);
            }
        };
        round(bench, &mut jvm, &mut servers, number, keep)?;
    }
    report(bench, &loads);
    Ok(())
}

/// Each load by each contestant, once. Round 0 is to warm up. Another contestant begins in each round, because whoever
/// comes first after another load is the faster for it.
fn round(
    bench: &Bench,
    jvm: &mut Jvm,
    servers: &mut [Server],
    number: usize,
    mut measured: impl FnMut(usize, usize, Pairs),
) -> Result<()> {
    for (
        load,
        Load {
            name: what,
            threads,
            locks,
            ..
        },
    ) in LOADS.into_iter().enumerate()
    {
        for place in 0..CONTESTANTS.len() {
            let contestant = (place + number) % CONTESTANTS.len();
            let Some((_, maker, client)) = CONTESTANTS.get(contestant).copied() else {
                continue;
            };
            let Some(server) = servers.get_mut(client) else {
                continue;
            };
            bench.say(&format!("Redisson in a JVM, {what}, round {number}"));
            let pairs = jvm.run(client, server, (threads, locks, maker), 3 * bench.window)?;
            measured(load, contestant, pairs);
        }
    }
    Ok(())
}

fn report(bench: &mut Bench, loads: &[Contests]) {
    let rows = LOADS.iter().zip(loads).flat_map(|(load, contests)| {
        let [plain, ..] = contests;
        let named = CONTESTANTS.iter().zip(contests);
        named.map(move |((name, ..), contest)| {
            vec![
                load.name.to_owned(),
                (*name).to_owned(),
                spread(&contest.rate),
                show(contest.rate.by(&plain.rate).median()),
                spread(&contest.cpu),
                show(contest.scripts.median()),
            ]
        })
    });
    let text = format!(
        "Redisson {NEWEST} in a JVM, with its default settings. Threads call lock() and unlock(), back to back; a pair is one of each. The JVM \
         uses\nall cores, the server the first. Where threads want one fair lock, a pair is also a hand-off; getLock() gives the lock \
         to any thread."
    );
    bench.report.table(
        "Real Redisson clients",
        &text,
        &[
            "threads",
            "lock, server",
            "pairs a second",
            "÷ no module",
            "server CPU, µs a pair",
            "scripts a pair",
        ],
        rows.collect(),
    );
    for (load, [plain, loaded, intercepted, _]) in LOADS.iter().zip(loads) {
        let name = load.name;
        let what = format!("Redisson, {name}: throughput, interception on ÷ no module");
        let ratio = intercepted.rate.by(&plain.rate);
        match load.wanted {
            Some(wanted) => bench.report.at_least(&what, &ratio, wanted),
            None => bench.report.ratio(&what, &ratio),
        }
        let what = format!("Redisson, {name}: throughput, interception off ÷ no module");
        let ratio = loaded.rate.by(&plain.rate);
        bench.report.at_least(&what, &ratio, LOADED);
    }
}
