//! What all scenes share: how long they measure, where they report.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use fairlock_testing::redisson::Scripts;
use indicatif::{ProgressBar, ProgressStyle};

use crate::crowd::{Crowd, Member};
use crate::measure::{Figure, Sample, sample};
use crate::plot::Line;
use crate::report::{Report, show, spread};
use crate::server::{Kind, Server};

/// A run of the benchmarks.
pub struct Bench {
    /// Shorter and smaller, for daily use.
    pub quick: bool,
    /// No ring of more clients than these.
    pub most_clients: usize,
    /// How often each contestant is measured.
    pub rounds: usize,
    /// How long each measurement takes.
    pub window: Duration,
    /// Redisson's.
    pub scripts: Rc<Scripts>,
    /// The report.
    pub report: Report,
    /// The lines of the picture: hand-offs a second by the number of clients.
    pub lines: Vec<Line>,
    progress: ProgressBar,
}

impl Bench {
    /// A run that has not begun.
    pub fn new(quick: bool, scripts: Scripts) -> Self {
        let progress = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {msg}");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let (rounds, window) = if quick { (3, 200) } else { (4, 1000) };
        Self {
            quick,
            most_clients: usize::MAX,
            rounds,
            window: Duration::from_millis(window),
            scripts: Rc::new(scripts),
            report: Report::default(),
            lines: Vec::new(),
            progress,
        }
    }

    /// Shows how far the run is: the scene that begins, and its place among them.
    pub fn begin(&self, scene: &str, index: u64, of: u64) {
        self.progress.set_length(of);
        self.progress.set_position(index);
        self.progress.set_message(scene.to_owned());
        self.progress.tick();
    }

    /// Shows what is being measured.
    pub fn say(&self, what: &str) {
        self.progress.set_message(what.to_owned());
        self.progress.tick();
    }

    /// Prints a line that stays on the screen.
    pub fn note(&self, what: &str) {
        self.progress.suspend(|| eprintln!("{what}"));
    }

    /// Takes the progress bar away.
    pub fn end(&self) {
        self.progress.finish_and_clear();
    }

    /// A server that knows Redisson's scripts.
    pub fn server(&self, kind: Kind, options: &[&str]) -> Result<Server> {
        let mut server = Server::start(kind, options)?;
        server.load(&self.scripts)?;
        Ok(server)
    }
}

/// A contestant, with its figures.
pub struct Contestant<M> {
    /// What it does, for the report.
    pub name: &'static str,
    /// Its server, by its place in the list that the rounds are given.
    pub server: usize,
    /// Its clients.
    pub crowd: Crowd<M>,
    /// Units a second.
    pub rate: Figure,
    /// Microseconds of the server's main thread for a unit.
    pub cpu: Figure,
}

impl<M: Member> Contestant<M> {
    /// One that has not been measured yet.
    pub fn new(name: &'static str, server: usize, crowd: Crowd<M>) -> Self {
        Self {
            name,
            server,
            crowd,
            rate: Figure::default(),
            cpu: Figure::default(),
        }
    }

    /// Measures it once.
    pub fn measure(&mut self, servers: &mut [Server], window: Duration) -> Result<()> {
        if let Some(server) = servers.get_mut(self.server) {
            let Sample { rate, cpu } = sample(server, &mut self.crowd, window)?;
            self.rate.push(rate);
            self.cpu.push(cpu);
        }
        Ok(())
    }
}

/// Measures all contestants in turn, as often as there are rounds.
pub fn rounds<M: Member>(
    bench: &Bench,
    servers: &mut [Server],
    contestants: &mut [Contestant<M>],
) -> Result<()> {
    rounds_of(bench, servers, contestants, bench.rounds, bench.window)
}

/// The same with a given number and length of rounds.
pub fn rounds_of<M: Member>(
    bench: &Bench,
    servers: &mut [Server],
    contestants: &mut [Contestant<M>],
    rounds: usize,
    window: Duration,
) -> Result<()> {
    for round in 1..=rounds {
        for contestant in contestants.iter_mut() {
            bench.say(&format!("{}, round {round}", contestant.name));
            contestant.measure(servers, window)?;
        }
    }
    Ok(())
}

/// Measures contestants that do the same beside more and more of something. The row of the table: the CPU of each,
/// and that of the last by the first.
pub fn growth<M: Member>(
    bench: &Bench,
    name: &str,
    servers: &mut [Server],
    contestants: &mut [Contestant<M>],
) -> Result<Vec<String>> {
    rounds_of(bench, servers, contestants, bench.rounds, bench.window / 2)?;
    let mut row = vec![name.to_owned()];
    row.extend(contestants.iter().map(|one| spread(&one.cpu)));
    if let (Some(first), Some(last)) = (contestants.first(), contestants.last()) {
        row.push(show(last.cpu.by(&first.cpu).median()));
    }
    Ok(row)
}
