//! One lock passed on among many clients.

use anyhow::Result;

use crate::bench::Bench;
use crate::crowd::{Crowd, Member};
use crate::measure::{Figure, Sample, sample};
use crate::report::{grouped, show, spread};
use crate::ring::blocking::Fairlock;
use crate::ring::gather;
use crate::server::{Kind, Server};

/// How many clients, and how many times the scripts' hand-offs there are to be.
const SIZES: [(usize, f64); 5] = [
    (2, 1.8),
    (16, 3.5),
    (100, 7.0),
    (1_000, 20.0),
    (10_000, 100.0),
];

/// What is known of one number of clients.
struct Race {
    clients: usize,
    times_scripts: f64,
    fairlock: Contest,
    token: Contest,
    scripts: Contest,
    unfairness: u64,
}

impl Race {
    fn by_token(&self) -> Figure {
        self.fairlock.rate.by(&self.token.rate)
    }

    fn by_scripts(&self) -> Figure {
        self.fairlock.rate.by(&self.scripts.rate)
    }
}

/// The figures of one contestant.
#[derive(Default)]
struct Contest {
    rate: Figure,
    cpu: Figure,
}

impl Contest {
    fn measure<M: Member>(
        &mut self,
        bench: &Bench,
        server: &mut Server,
        crowd: &mut Crowd<M>,
    ) -> Result<()> {
        let Sample { rate, cpu } = sample(server, crowd, bench.window)?;
        self.rate.push(rate);
        self.cpu.push(cpu);
        Ok(())
    }
}

/// Runs the scene. Returns the lines of its picture.
pub fn run(bench: &mut Bench) -> Result<Vec<crate::plot::Line>> {
    let mut races = Vec::new();
    for (clients, times_scripts) in SIZES {
        let most = if bench.quick { 1_000 } else { 10_000 };
        if clients <= most.min(bench.most_clients) {
            races.push(race(bench, clients, times_scripts)?);
        }
    }
    report(bench, &races);
    Ok(lines(&races))
}

fn race(bench: &Bench, clients: usize, times_scripts: f64) -> Result<Race> {
    let mut ours = bench.server(Kind::Module, &[])?;
    let mut tokens = bench.server(Kind::Plain, &[])?;
    let mut scripts = bench.server(Kind::Plain, &[])?;
    let mut race = Race {
        clients,
        times_scripts,
        fairlock: Contest::default(),
        token: Contest::default(),
        scripts: Contest::default(),
        unfairness: 0,
    };
    for round in 1..=bench.rounds.min(3) {
        bench.say(&format!("hand-offs, {clients} clients, round {round}"));
        // The clients of one contestant at a time: all would be more files than a process may have.
        let key = format!("ring:{round}");
        let mut crowd = gather::fairlock(&mut ours, &key, clients)?;
        let before: Vec<u64> = crowd.members().map(Member::done).collect();
        race.fairlock.measure(bench, &mut ours, &mut crowd)?;
        race.unfairness = race.unfairness.max(unfairness(&crowd, &before));
        drop(crowd);
        let mut crowd = gather::token(&mut tokens, &key, clients)?;
        race.token.measure(bench, &mut tokens, &mut crowd)?;
        drop(crowd);
        let mut crowd = gather::redisson(bench, &mut scripts, &key, clients)?;
        race.scripts.measure(bench, &mut scripts, &mut crowd)?;
    }
    Ok(race)
}

/// By how much the members differ in what they have done since.
fn unfairness(crowd: &Crowd<Fairlock>, before: &[u64]) -> u64 {
    let after = crowd.members().map(Member::done);
    let gained: Vec<u64> = after
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    let most = gained.iter().max().copied().unwrap_or(0);
    most - gained.iter().min().copied().unwrap_or(0)
}

#[allow(clippy::cast_precision_loss)] // Far below 2^53.
fn number(clients: usize) -> f64 {
    clients as f64
}

fn report(bench: &mut Bench, races: &[Race]) {
    let rows = races.iter().map(|race| {
        let cpu = [&race.fairlock, &race.token, &race.scripts].map(|contest| &contest.cpu);
        vec![
            grouped(race.clients),
            spread(&race.fairlock.rate),
            spread(&race.token.rate),
            spread(&race.scripts.rate),
            show(race.by_token().median()),
            show(race.by_scripts().median()),
            cpu.map(|figure| show(figure.median())).join(" / "),
            race.unfairness.to_string(),
        ]
    });
    bench.report.table(
        "Hand-offs of one lock",
        "Hand-offs a second in a closed loop: each client releases the lock as soon as it has it, and asks again in the same write. \
         BLPOP and RPUSH pass one\ntoken among as many clients. Clients of Redisson's scripts hear messages on the connection that \
         they ask on. The last column compares the\nacquisitions of fairlock's clients.",
        &[
            "clients",
            "fairlock",
            "BLPOP, RPUSH",
            "Redisson's scripts",
            "fairlock ÷ BLPOP",
            "fairlock ÷ scripts",
            "server CPU, µs each",
            "most served − least served",
        ],
        rows.collect(),
    );
    let report = &mut bench.report;
    for race in races {
        let what = format!(
            "Hand-offs a second, {} blocking clients: fairlock ÷ BLPOP and RPUSH",
            grouped(race.clients)
        );
        report.at_least(&what, &race.by_token(), 0.9);
    }
    for race in races {
        let what = format!(
            "Hand-offs a second, {} clients: fairlock, blocking ÷ Redisson's scripts",
            grouped(race.clients)
        );
        report.at_least(&what, &race.by_scripts(), race.times_scripts);
    }
    let of = |clients| races.iter().find(|race| race.clients == clients);
    if let (Some(many), Some(some)) = (of(10_000), of(100)) {
        let flat = many.fairlock.rate.by(&some.fairlock.rate);
        report.at_least(
            "Hand-offs a second, blocking: 10,000 clients ÷ 100",
            &flat,
            0.9,
        );
    }
    let unfairness = races.iter().map(|race| race.unfairness).max();
    #[allow(clippy::cast_precision_loss)] // Far below 2^53.
    let greatest = Figure::of(unfairness.unwrap_or(0) as f64);
    report.at_most(
        "Fairness: acquisitions of the most-served client − the least-served",
        &greatest,
        1.0,
        "",
    );
}

fn lines(races: &[Race]) -> Vec<crate::plot::Line> {
    let line = |of: fn(&Race) -> &Figure| {
        let points = races
            .iter()
            .map(|race| (number(race.clients), of(race).median()));
        points.collect()
    };
    vec![
        ("fairlock", line(|race| &race.fairlock.rate)),
        ("BLPOP, RPUSH", line(|race| &race.token.rate)),
        ("Redisson's scripts", line(|race| &race.scripts.rate)),
    ]
}
