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

/// What threads do.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    threads: usize,
    locks: Locks,
}

const LOADS: [Load; 4] = [
    Load {
        name: "1 thread",
        threads: 1,
        locks: Locks::One,
    },
    Load {
        name: "8 threads on one lock",
        threads: 8,
        locks: Locks::One,
    },
    Load {
        name: "64 threads on one lock",
        threads: 64,
        locks: Locks::One,
    },
    Load {
        name: "64 threads, each with a lock of its own",
        threads: 64,
        locks: Locks::Own,
    },
];

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

/// The figures of one load.
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
    // The JVM's compiler must be done before measuring.
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

/// Each load by each contestant, once. Round 0 is to warm up. Another contestant begins in each round, because the
/// first one after another load has an advantage.
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
    let rows = LOADS.iter().zip(loads).map(|(load, contests)| {
        let [plain, loaded, intercepted, unfair] = contests;
        let all = |of: fn(&Contest) -> &Figure| {
            let medians = contests
                .each_ref()
                .map(|contest| show(of(contest).median()));
            medians.join(" / ")
        };
        let mut row = vec![load.name.to_owned(), spread(&plain.rate)];
        let others = [loaded, intercepted, unfair];
        row.extend(others.map(|contest| show(contest.rate.by(&plain.rate).median())));
        row.extend([all(|contest| &contest.cpu), all(|contest| &contest.scripts)]);
        row
    });
    let text = format!(
        "Redisson {NEWEST} with its default settings. A pair is lock() and unlock(), back to back. The next three \
         columns are the pairs of others ÷ those of the first; the last two are of the four in their order."
    );
    bench.report.table(
        "Real Redisson clients",
        &text,
        &[
            "threads",
            "getFairLock, no module: pairs a second",
            "interception off",
            "on",
            "getLock (not fair)",
            "CPU of a pair",
            "scripts a pair",
        ],
        rows.collect(),
    );
}
