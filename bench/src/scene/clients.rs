//! What a hand-off costs the server, by the kind of client: Redisson's scripts without the module,
//! with it, and intercepted; and clients of FAIRLOCK commands.

use anyhow::Result;

use crate::bench::Bench;
use crate::crowd::{Crowd, Member};
use crate::measure::{Figure, HandOffs, hand_offs};
use crate::report::{TIMES, grouped, show, spread};
use crate::ring::gather;
use crate::server::{Kind, Server};

/// How many clients wait for one lock, and by how much interception is to make a hand-off cheaper.
const SIZES: [(usize, Option<f64>); 5] = [
    (2, None),
    (16, Some(2.0)),
    (100, Some(8.0)),
    (1_000, Some(30.0)),
    (10_000, None),
];

/// ENQUEUE may take 30 µs where blocking takes 14.
const POLLING: f64 = 30.0 / 14.0;

/// How a client waits, and on which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Scripts(Kind),
    Polling,
    Blocked,
    /// No lock: the same calls and messages, about nothing.
    Relay,
}

/// In the order of [`Contests::all`].
const WAYS: [(Way, &str); 6] = [
    (Way::Scripts(Kind::Plain), "Redisson's scripts, no module"),
    (
        Way::Scripts(Kind::Module),
        "Redisson's scripts, interception off",
    ),
    (
        Way::Scripts(Kind::Intercepting),
        "Redisson's scripts, interception on",
    ),
    (Way::Polling, "FAIRLOCK.ACQUIRE ENQUEUE"),
    (Way::Blocked, "FAIRLOCK.ACQUIRE, blocking"),
    (Way::Relay, "no lock, as many calls and messages"),
];

/// The figures of one kind of client.
#[derive(Debug, Default)]
struct Contest {
    cpu: Figure,
    rate: Figure,
    calls: Figure,
    messages: Figure,
}

impl Contest {
    fn push(&mut self, measured: HandOffs) {
        self.cpu.push(measured.cpu);
        self.rate.push(measured.rate);
        self.calls.push(measured.calls);
        self.messages.push(measured.messages);
    }
}

/// What is known of one number of clients.
#[derive(Debug, Default)]
struct Contests {
    clients: usize,
    wanted: Option<f64>,
    all: [Contest; WAYS.len()],
}

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let most = if bench.quick { 100 } else { 10_000 };
    let mut sizes = Vec::new();
    for (clients, wanted) in SIZES {
        if clients <= most.min(bench.most_clients) {
            sizes.push(compare(bench, clients, wanted)?);
        }
    }
    table(bench, &sizes);
    goals(bench, &sizes);
    Ok(())
}

fn compare(bench: &Bench, clients: usize, wanted: Option<f64>) -> Result<Contests> {
    let mut contests = Contests {
        clients,
        wanted,
        ..Contests::default()
    };
    let rounds = if bench.quick { 1 } else { 3 };
    for round in 1..=rounds {
        for ((way, name), contest) in WAYS.into_iter().zip(&mut contests.all) {
            bench.say(&format!("{name}, {clients} clients, round {round}"));
            contest.push(measure(bench, way, clients)?);
        }
    }
    Ok(contests)
}

/// Each time on a new server: of those who are cut off, nothing is left that could go on.
fn measure(bench: &Bench, way: Way, clients: usize) -> Result<HandOffs> {
    let kind = match way {
        Way::Scripts(kind) => kind,
        Way::Polling | Way::Blocked => Kind::Module,
        Way::Relay => Kind::Plain,
    };
    let mut server = bench.server(kind, &[])?;
    let key = "ring";
    match way {
        Way::Scripts(_) => {
            let crowd = gather::redisson(bench, &mut server, key, clients)?;
            count(bench, &server, crowd)
        }
        Way::Polling => {
            let crowd = gather::polling(&mut server, key, clients)?;
            count(bench, &server, crowd)
        }
        Way::Blocked => {
            let crowd = gather::fairlock(&mut server, key, clients)?;
            count(bench, &server, crowd)
        }
        Way::Relay => {
            let crowd = gather::relay(&mut server, clients)?;
            count(bench, &server, crowd)
        }
    }
}

fn count<M: Member>(bench: &Bench, server: &Server, mut crowd: Crowd<M>) -> Result<HandOffs> {
    hand_offs(server, &mut crowd, bench.window)
}

fn table(bench: &mut Bench, sizes: &[Contests]) {
    let rows = sizes.iter().flat_map(|contests| {
        let [plain, ..] = &contests.all;
        let named = WAYS.iter().zip(&contests.all);
        named.map(|((_, name), contest)| {
            vec![
                grouped(contests.clients),
                (*name).to_owned(),
                spread(&contest.cpu),
                show(plain.cpu.by(&contest.cpu).median()),
                spread(&contest.rate),
                show(contest.calls.median()),
                show(contest.messages.median()),
            ]
        })
    });
    bench.report.table(
        "CPU of a hand-off, by the kind of client",
        "Clients take one lock in turn, in a closed loop: each releases it as soon as it has it, and asks again in the same write. \
         CPU is that of the\nserver's process, user and system time. Redisson's scripts are sent by EVALSHA; their clients wait as \
         Redisson does, for a message or for the time\nin the reply, but stay subscribed, and hear messages on the connection that \
         they ask on. A hand-off takes at least three calls and one message\nwhere clients ask again, and two calls where they \
         block; more of either means that clients were woken, or asked, to no end.",
        &[
            "clients",
            "by",
            "server CPU, µs a hand-off",
            "Lua's CPU ÷ this",
            "hand-offs a second",
            "calls a hand-off",
            "messages a hand-off",
        ],
        rows.collect(),
    );
}

fn goals(bench: &mut Bench, sizes: &[Contests]) {
    let report = &mut bench.report;
    for contests in sizes {
        let [plain, _, intercepted, ..] = &contests.all;
        let what = format!(
            "Redisson clients, {} on one lock: CPU of a hand-off, Lua ÷ intercepted",
            grouped(contests.clients)
        );
        let ratio = plain.cpu.by(&intercepted.cpu);
        match contests.wanted {
            Some(wanted) => report.at_least(&what, &ratio, wanted),
            None => report.ratio(&what, &ratio),
        }
    }
    let of = |clients| sizes.iter().find(|contests| contests.clients == clients);
    if let (Some(many), Some(some)) = (of(10_000), of(16)) {
        let [_, _, many, ..] = &many.all;
        let [_, _, some, ..] = &some.all;
        let what = "Redisson clients, intercepted: CPU of a hand-off, 10,000 clients ÷ 16";
        report.at_most(what, &many.cpu.by(&some.cpu), 2.0, TIMES);
    }
    for contests in sizes {
        let [plain, loaded, ..] = &contests.all;
        let what = format!(
            "Redisson clients, {} on one lock: CPU of a hand-off, interception off ÷ no module",
            grouped(contests.clients)
        );
        report.ratio(&what, &loaded.cpu.by(&plain.cpu));
    }
    for contests in sizes {
        let [_, _, _, polling, blocked, _] = &contests.all;
        let what = format!(
            "ENQUEUE clients, {} on one lock: CPU of a hand-off ÷ that of blocking clients",
            grouped(contests.clients)
        );
        report.at_most(&what, &polling.cpu.by(&blocked.cpu), POLLING, TIMES);
    }
}
