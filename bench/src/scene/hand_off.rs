//! One lock passed on among many clients.

use anyhow::Result;

use crate::bench::Bench;
use crate::crowd::{Crowd, Member};
use crate::measure::{Contest, Figure, Sample, sample};
use crate::report::{Goal, REDIS_PY, REDISSON, TIMES, grouped, show, spread};
use crate::ring::gather;
use crate::server::{Kind, Server};

/// How many clients.
const SIZES: [usize; 5] = [2, 16, 100, 1_000, 10_000];

/// The figures for one number of clients.
#[derive(Default)]
struct Race {
    clients: usize,
    fairlock: Contest,
    token: Contest,
    scripts: Contest,
    retrying: Contest,
    unfairness: [u64; 2],
}

impl Race {
    fn by_token(&self) -> Figure {
        self.fairlock.rate.by(&self.token.rate)
    }

    fn by_scripts(&self) -> Figure {
        self.fairlock.rate.by(&self.scripts.rate)
    }
}

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let mut races = Vec::new();
    for clients in SIZES {
        let most = if bench.quick { 1_000 } else { 10_000 };
        if clients <= most.min(bench.most_clients) {
            races.push(race(bench, clients)?);
        }
    }
    report(bench, &races);
    bench.lines.extend(lines(&races));
    Ok(())
}

fn race(bench: &Bench, clients: usize) -> Result<Race> {
    let mut ours = bench.server(Kind::Module, &[])?;
    let mut tokens = bench.server(Kind::Plain, &[])?;
    let mut scripts = bench.server(Kind::Plain, &[])?;
    let mut race = Race {
        clients,
        ..Race::default()
    };
    for round in 1..=bench.rounds.min(3) {
        bench.say(&format!("hand-offs, {clients} clients, round {round}"));
        // The clients of one contestant at a time: all would be more files than a process may have.
        let key = format!("ring:{round}");
        let [fair, unfair] = &mut race.unfairness;
        let crowd = gather::fairlock(&mut ours, &key, clients)?;
        race.fairlock.push(measured(bench, &mut ours, crowd, fair)?);
        let crowd = gather::token(&mut tokens, &key, clients)?;
        race.token
            .push(measured(bench, &mut tokens, crowd, &mut 0)?);
        let crowd = gather::redisson(bench, &mut scripts, &key, clients)?;
        race.scripts
            .push(measured(bench, &mut scripts, crowd, &mut 0)?);
        let crowd = gather::retrying(&tokens, &key, clients)?;
        race.retrying
            .push(measured(bench, &mut tokens, crowd, unfair)?);
    }
    Ok(race)
}

/// Measures a crowd, and records the largest difference between its members' hand-offs so far.
fn measured<M: Member>(
    bench: &Bench,
    server: &mut Server,
    mut crowd: Crowd<M>,
    unfairness: &mut u64,
) -> Result<Sample> {
    let before: Vec<u64> = crowd.members().map(Member::done).collect();
    let sample = sample(server, &mut crowd, bench.window)?;
    let after = crowd.members().map(Member::done);
    let gained: Vec<u64> = after
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    let most = gained.iter().max().copied().unwrap_or(0);
    let least = gained.iter().min().copied().unwrap_or(0);
    *unfairness = (most - least).max(*unfairness);
    Ok(sample)
}

#[allow(clippy::cast_precision_loss)] // Far below 2^53.
fn number(clients: usize) -> f64 {
    clients as f64
}

fn report(bench: &mut Bench, races: &[Race]) {
    let rows = races.iter().map(|race| {
        let all = [&race.fairlock, &race.token, &race.scripts, &race.retrying];
        let mut row = vec![grouped(race.clients)];
        row.extend(all.map(|contest| spread(&contest.rate)));
        row.extend([race.by_token(), race.by_scripts()].map(|ratio| show(ratio.median())));
        row.push(all.map(|contest| show(contest.cpu.median())).join(" / "));
        row.push(
            race.unfairness
                .map(|difference| difference.to_string())
                .join(" / "),
        );
        row
    });
    bench.report.table(
        "Hand-offs of one lock",
        "Hand-offs a second: each client releases the lock as soon as it has it, and asks again in the same write. \
         BLPOP and RPUSH pass one token. redis-py's Lock asks every 0.1 s, and waits as long after a release. CPU is \
         that of the four in their order; the last column is of fairlock and redis-py's Lock.",
        &[
            "clients",
            "fairlock",
            "BLPOP, RPUSH",
            "Redisson's scripts",
            "redis-py's Lock",
            "fairlock ÷ BLPOP",
            "fairlock ÷ scripts",
            "CPU",
            "most served − least served",
        ],
        rows.collect(),
    );
    summary(bench, races);
}

fn summary(bench: &mut Bench, races: &[Race]) {
    let report = &mut bench.report;
    let goal = Goal::AtMost(1.4, "[waiting](performance.md#waiting)");
    for race in races {
        let ratio = |other: &Contest| other.cpu.by(&race.fairlock.cpu);
        report.instead(REDISSON, race.clients, &ratio(&race.scripts));
        report.instead(REDIS_PY, race.clients, &ratio(&race.retrying));
        let floor = race.fairlock.cpu.by(&race.token.cpu);
        report.floor("blocking ÷ BLPOP, RPUSH", race.clients, &floor, goal);
    }
    let of = |clients| races.iter().find(|race| race.clients == clients);
    if let (Some(many), Some(some)) = (of(10_000), of(100)) {
        let flat = many.fairlock.rate.by(&some.fairlock.rate);
        let what = "Hand-offs a second, blocking: 10,000 clients ÷ 100";
        report.goal(
            what,
            &flat,
            TIMES,
            Goal::AtLeast(0.9, "the queue costs more as it grows"),
        );
    }
    let unfairness = races.iter().map(|race| race.unfairness[0]).max();
    #[allow(clippy::cast_precision_loss)] // Far below 2^53.
    let greatest = Figure::of(unfairness.unwrap_or(0) as f64);
    let what = "Acquisitions of the most-served client − the least-served";
    report.goal(
        what,
        &greatest,
        "",
        Goal::AtMost(1.0, "waiters were served out of their order"),
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
        ("redis-py's Lock", line(|race| &race.retrying.rate)),
    ]
}
