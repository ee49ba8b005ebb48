//! One lock passed on among many clients.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::bench::Bench;
use crate::crowd::{Crowd, Member};
use crate::measure::{Figure, Sample, sample};
use crate::report::{show, spread};
use crate::ring::{Fairlock, Redisson, Token};
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
        if bench.quick && clients > 1_000 {
            continue;
        }
        races.push(race(bench, clients, times_scripts)?);
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
        let mut crowd = fairlock(&mut ours, &key, clients)?;
        let before: Vec<u64> = crowd.members().map(Member::done).collect();
        race.fairlock.measure(bench, &mut ours, &mut crowd)?;
        race.unfairness = race.unfairness.max(unfairness(&crowd, &before));
        drop(crowd);
        let mut crowd = token(&mut tokens, &key, clients)?;
        race.token.measure(bench, &mut tokens, &mut crowd)?;
        drop(crowd);
        let mut crowd = redisson(bench, &mut scripts, &key, clients)?;
        race.scripts.measure(bench, &mut scripts, &mut crowd)?;
    }
    Ok(race)
}

/// Clients of fairlock: one holds the lock, all others wait.
fn fairlock(server: &mut Server, key: &str, clients: usize) -> Result<Crowd<Fairlock>> {
    server.wait("blocked_clients", |blocked| blocked < 0.5)?;
    let members = (0..clients).map(|number| Fairlock::new(key, number));
    let mut crowd = Crowd::connect(server.address(), members)?;
    all_wait(&mut crowd, clients, || {
        Ok(server.info("blocked_clients")? + 1.0)
    })?;
    Ok(crowd)
}

/// Clients of a list with one token: one has it, all others wait.
fn token(server: &mut Server, key: &str, clients: usize) -> Result<Crowd<Token>> {
    server.wait("blocked_clients", |blocked| blocked < 0.5)?;
    let members = (0..clients).map(|_| Token::new(key));
    let crowd = Crowd::connect(server.address(), members)?;
    server.wait("blocked_clients", |blocked| blocked >= number(clients))?;
    let _: i64 = server.run(&[b"RPUSH", key.as_bytes(), b"token"])?;
    Ok(crowd)
}

/// Clients of Redisson's scripts: one holds the lock, all others are in the queue.
fn redisson(
    bench: &Bench,
    server: &mut Server,
    key: &str,
    clients: usize,
) -> Result<Crowd<Redisson>> {
    let members = (0..clients).map(|number| Redisson::new(&bench.scripts, key, number));
    let mut crowd = Crowd::connect(server.address(), members)?;
    let queue = format!("redisson_lock_queue:{{{key}}}");
    all_wait(&mut crowd, clients, || {
        let queued: f64 = server.run(&[b"LLEN", queue.as_bytes()])?;
        Ok(queued + 1.0)
    })?;
    Ok(crowd)
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

/// Lets a crowd go on until all but the holder wait.
fn all_wait<M: Member>(
    crowd: &mut Crowd<M>,
    clients: usize,
    mut there: impl FnMut() -> Result<f64>,
) -> Result<()> {
    let end = Instant::now() + Duration::from_mins(2);
    while there()? < number(clients) {
        crowd.run(Duration::from_millis(50))?;
        if Instant::now() > end {
            bail!("not all clients have come in two minutes");
        }
    }
    Ok(())
}

fn report(bench: &mut Bench, races: &[Race]) {
    let rows = races.iter().map(|race| {
        let cpu = [&race.fairlock, &race.token, &race.scripts].map(|contest| &contest.cpu);
        vec![
            race.clients.to_string(),
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
        "Hand-offs a second in a closed loop: whoever gets the lock gives it back at once and asks again, in one write. \
         BLPOP and RPUSH pass one token\nbetween as many clients. Clients of Redisson's scripts hear their wake-ups on the \
         connection that they ask on. The last column says by how\nmuch fairlock's clients differ in acquisitions.",
        &[
            "clients",
            "fairlock",
            "BLPOP, RPUSH",
            "Redisson's scripts",
            "by BLPOP",
            "by the scripts",
            "server CPU, µs each",
            "unfairness",
        ],
        rows.collect(),
    );
    let report = &mut bench.report;
    for race in races {
        let what = format!(
            "hand-offs among {} clients, by BLPOP and RPUSH",
            race.clients
        );
        report.at_least(&what, &race.by_token(), 0.9);
    }
    for race in races {
        let what = format!("hand-offs among {} clients, by the scripts", race.clients);
        report.at_least(&what, &race.by_scripts(), race.times_scripts);
    }
    let of = |clients| races.iter().find(|race| race.clients == clients);
    if let (Some(many), Some(some)) = (of(10_000), of(100)) {
        let flat = many.fairlock.rate.by(&some.fairlock.rate);
        report.at_least(
            "hand-offs among 10,000 clients, by those among 100",
            &flat,
            0.9,
        );
    }
    let unfairness = races.iter().map(|race| race.unfairness).max();
    #[allow(clippy::cast_precision_loss)] // Far below 2^53.
    let greatest = Figure::of(unfairness.unwrap_or(0) as f64);
    report.at_most(
        "by how much clients differ in acquisitions",
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
