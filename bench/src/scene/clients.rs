//! What a hand-off costs the server, by the kind of client: Redisson's scripts without the module,
//! with it, and intercepted; and clients of FAIRLOCK commands.

use anyhow::Result;

use crate::bench::Bench;
use crate::crowd::{Crowd, Member};
use crate::measure::{Figure, HandOffs, hand_offs};
use crate::report::{Goal, OWN_SCRIPTS, TIMES, grouped, show, spread};
use crate::ring::gather;
use crate::server::{Kind, Server};

/// How many clients wait for one lock.
const SIZES: [usize; 5] = [2, 16, 100, 1_000, 10_000];

/// How a client waits, and on which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Scripts(Kind),
    OwnScripts,
    Polling,
    Blocked,
    /// No lock: the same calls and messages, about nothing.
    Relay,
}

/// In the order of [`Contests::all`].
const WAYS: [(Way, &str); 7] = [
    (Way::Scripts(Kind::Plain), "Redisson's scripts, no module"),
    (
        Way::Scripts(Kind::Module),
        "Redisson's scripts, interception off",
    ),
    (
        Way::Scripts(Kind::Intercepting),
        "Redisson's scripts, interception on",
    ),
    (Way::OwnScripts, "the packages' scripts, no module"),
    (Way::Polling, "FAIRLOCK.ACQUIRE ENQUEUE"),
    (Way::Blocked, "FAIRLOCK.ACQUIRE, blocking"),
    (Way::Relay, "no lock, as many calls and messages"),
];

/// Those that are to cost no more among many clients.
const FLAT: [Way; 2] = [Way::Scripts(Kind::Intercepting), Way::Polling];

/// The figures of one kind of client.
#[derive(Debug, Default)]
struct Contest {
    cpu: Figure,
    calls: Figure,
    messages: Figure,
}

impl Contest {
    fn push(&mut self, measured: HandOffs) {
        self.cpu.push(measured.cpu);
        self.calls.push(measured.calls);
        self.messages.push(measured.messages);
    }
}

/// The figures for one number of clients.
#[derive(Debug, Default)]
struct Contests {
    clients: usize,
    all: [Contest; WAYS.len()],
}

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let most = if bench.quick { 100 } else { 10_000 };
    let mut sizes = Vec::new();
    for clients in SIZES {
        if clients <= most.min(bench.most_clients) {
            sizes.push(compare(bench, clients)?);
        }
    }
    table(bench, &sizes);
    summary(bench, &sizes);
    Ok(())
}

fn compare(bench: &Bench, clients: usize) -> Result<Contests> {
    let mut contests = Contests {
        clients,
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

/// Each on a new server: no client of an earlier contest is left.
fn measure(bench: &Bench, way: Way, clients: usize) -> Result<HandOffs> {
    let kind = match way {
        Way::Scripts(kind) => kind,
        Way::Polling | Way::Blocked => Kind::Module,
        Way::OwnScripts | Way::Relay => Kind::Plain,
    };
    let mut server = bench.server(kind, &[])?;
    let key = "ring";
    match way {
        Way::Scripts(_) => {
            let crowd = gather::redisson(bench, &mut server, key, clients)?;
            count(bench, &server, crowd)
        }
        Way::OwnScripts => {
            let crowd = gather::by_scripts(&mut server, key, clients)?;
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
    let rows = WAYS.iter().enumerate().map(|(index, (_, name))| {
        let among: Vec<&Contest> = sizes
            .iter()
            .filter_map(|contests| contests.all.get(index))
            .collect();
        let most = |of: fn(&Contest) -> &Figure| {
            show(
                among
                    .iter()
                    .map(|contest| of(contest).median())
                    .fold(0.0, f64::max),
            )
        };
        let mut row = vec![(*name).to_owned()];
        row.extend(among.iter().map(|contest| spread(&contest.cpu)));
        row.extend([
            most(|contest| &contest.calls),
            most(|contest| &contest.messages),
        ]);
        row
    });
    let mut header = vec!["clients".to_owned()];
    header.extend(sizes.iter().map(|contests| grouped(contests.clients)));
    header.extend(["calls", "messages"].map(str::to_owned));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    bench.report.table(
        "CPU of a hand-off, by the kind of client",
        "Redisson's scripts are sent by EVALSHA. The last columns are the most of any number of clients; more than \
         three calls and one message (blocking: two calls) would mean that clients were woken, or asked, in vain.",
        &header,
        rows.collect(),
    );
}

fn summary(bench: &mut Bench, sizes: &[Contests]) {
    const WHY: &str = "[the floor](performance.md#the-floor)";
    let report = &mut bench.report;
    for Contests { clients, all } in sizes {
        let [_, _, intercepted, own, polling, blocked, relay] = all;
        report.instead(OWN_SCRIPTS, *clients, &own.cpu.by(&blocked.cpu));
        for (name, contest) in [
            ("ENQUEUE ÷ the calls", polling),
            ("Redisson's scripts, intercepted ÷ the calls", intercepted),
        ] {
            let ratio = contest.cpu.by(&relay.cpu);
            report.floor(name, *clients, &ratio, Goal::AtMost(1.6, WHY));
        }
        // What a server without modules costs. Among more, they look for their places in a list.
        if *clients <= 1000 {
            let ratio = own.cpu.by(&polling.cpu);
            let goal = Goal::AtMost(2.5, "they run as Lua");
            report.floor("the packages' scripts ÷ ENQUEUE", *clients, &ratio, goal);
        }
    }
    let of = |clients| sizes.iter().find(|contests| contests.clients == clients);
    let Some(some) = of(16) else { return };
    if let Some(many) = of(1000) {
        let [[_, _, _, many, ..], [_, _, _, some, ..]] = [&many.all, &some.all];
        let what = "CPU of a hand-off, the packages' scripts: 1,000 clients ÷ 16";
        let goal = Goal::AtMost(1.2, "the queue costs more as it grows");
        report.goal(what, &many.cpu.by(&some.cpu), TIMES, goal);
    }
    let Some(many) = of(10_000) else { return };
    let both = many.all.iter().zip(&some.all);
    for ((way, name), (many, some)) in WAYS.iter().zip(both) {
        if FLAT.contains(way) {
            let what = format!("CPU of a hand-off, {name}: 10,000 clients ÷ 16");
            let goal = Goal::AtMost(1.2, "the queue costs more as it grows");
            report.goal(&what, &many.cpu.by(&some.cpu), TIMES, goal);
        }
    }
}
