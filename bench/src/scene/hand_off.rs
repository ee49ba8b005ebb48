//! One lock passed on among many clients.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::bench::{Bench, Contestant};
use crate::crowd::{Crowd, Member};
use crate::measure::Figure;
use crate::report::{show, spread};
use crate::ring::{Fairlock, Redisson, Token};
use crate::server::Kind;

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
    fairlock: Figure,
    token: Figure,
    scripts: Figure,
    cpu: [f64; 3],
    unfairness: u64,
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
    bench.say(&format!("hand-offs, {clients} clients connect"));
    let mut servers = [
        bench.server(Kind::Module, &[])?,
        bench.server(Kind::Plain, &[])?,
        bench.server(Kind::Plain, &[])?,
    ];
    let [ours, tokens, scripts] = &mut servers;
    let members = (0..clients).map(|number| Fairlock::new("ring", number));
    let crowd = Crowd::connect(ours.address(), members)?;
    let mut fairlock = Contestant::new("fairlock", 0, crowd);
    let members = (0..clients).map(|_| Token::new("ring"));
    let mut token = Contestant::new(
        "BLPOP, RPUSH",
        1,
        Crowd::connect(tokens.address(), members)?,
    );
    tokens.wait("blocked_clients", |blocked| blocked >= number(clients))?;
    let _: i64 = tokens.run(&[b"RPUSH", b"ring", b"token"])?;
    let members = (0..clients).map(|number| Redisson::new(&bench.scripts, "ring", number));
    let mut lua = Contestant::new(
        "Redisson's scripts",
        2,
        Crowd::connect(scripts.address(), members)?,
    );
    all_wait(&mut fairlock.crowd, clients, || {
        Ok(ours.info("blocked_clients")? + 1.0)
    })?;
    all_wait(&mut lua.crowd, clients, || {
        let queued: f64 = scripts.run(&[b"LLEN", b"redisson_lock_queue:{ring}"])?;
        Ok(queued + 1.0)
    })?;

    let before: Vec<u64> = fairlock.crowd.members().map(Member::done).collect();
    for round in 1..=bench.rounds.min(3) {
        bench.say(&format!("hand-offs, {clients} clients, round {round}"));
        fairlock.measure(&mut servers, bench.window)?;
        token.measure(&mut servers, bench.window)?;
        lua.measure(&mut servers, bench.window)?;
    }
    let after = fairlock.crowd.members().map(Member::done);
    let gained: Vec<u64> = after
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    let most = gained.iter().max().copied().unwrap_or(0);
    Ok(Race {
        clients,
        times_scripts,
        unfairness: most - gained.iter().min().copied().unwrap_or(0),
        cpu: [fairlock.cpu.median(), token.cpu.median(), lua.cpu.median()],
        fairlock: fairlock.rate,
        token: token.rate,
        scripts: lua.rate,
    })
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
        let [fairlock, token, scripts] = race.cpu.map(show);
        vec![
            race.clients.to_string(),
            spread(&race.fairlock),
            spread(&race.token),
            spread(&race.scripts),
            show(race.fairlock.by(&race.token).median()),
            show(race.fairlock.by(&race.scripts).median()),
            format!("{fairlock} / {token} / {scripts}"),
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
        report.at_least(&what, &race.fairlock.by(&race.token), 0.9);
    }
    for race in races {
        let what = format!("hand-offs among {} clients, by the scripts", race.clients);
        report.at_least(&what, &race.fairlock.by(&race.scripts), race.times_scripts);
    }
    let of = |clients| races.iter().find(|race| race.clients == clients);
    if let (Some(many), Some(some)) = (of(10_000), of(100)) {
        let flat = many.fairlock.by(&some.fairlock);
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
        ("fairlock", line(|race| &race.fairlock)),
        ("BLPOP, RPUSH", line(|race| &race.token)),
        ("Redisson's scripts", line(|race| &race.scripts)),
    ]
}
