//! Measures fairlock beside Redisson's scripts and the server's own commands: what `make bench`
//! and `make bench-quick` run.
//!
//! - [`resp`], [`crowd`]: a client of many connections that is never the limit;
//! - [`server`]: what is measured;
//! - [`pairs`], [`ring`], [`work`]: what clients do;
//! - [`jvm`], [`postgres`]: Redisson itself, and a database with a lock;
//! - [`measure`], [`bench`]: figures, contestants in turn;
//! - [`quiet`]: whether other work runs on the machine;
//! - [`scene`]: what is measured, a file each; [`instructions`]: counted, not timed;
//! - [`report`], [`plot`]: tables, ratios, pictures.

mod bench;
mod crowd;
mod instructions;
mod jvm;
mod measure;
mod pairs;
mod plot;
mod postgres;
mod quiet;
mod report;
mod resp;
mod ring;
mod scene;
mod server;
mod work;

use std::net::SocketAddr;
use std::num::NonZero;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use fairlock_testing::redisson::Scripts;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

use bench::Bench;

/// Measures fairlock beside Redisson's scripts and the server's own commands.
#[derive(Debug, Parser)]
struct Arguments {
    /// Less of everything, and nothing written.
    #[arg(long)]
    quick: bool,
    /// Only the scenes whose names begin like this; of the instructions, the rows that have this in their names.
    #[arg(long)]
    only: Option<String>,
    /// With --only: the most clients on one lock. With instructions: hand-offs among this many clients only.
    #[arg(long, requires = "only")]
    clients: Option<usize>,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What is done in place of the benchmarks.
#[derive(Debug, Subcommand)]
enum Part {
    /// Counts the instructions of uncontended pairs and of hand-offs with callgrind.
    Instructions,
    /// Holds blocked clients until it is killed.
    #[command(hide = true)]
    Hold {
        address: SocketAddr,
        manner: String,
        number: u32,
    },
}

type Scene = (&'static str, fn(&mut Bench) -> Result<()>);

fn scenes() -> [Scene; 12] {
    [
        ("uncontended", scene::uncontended::run),
        ("hand-off", scene::hand_off::run),
        ("clients", scene::clients::run),
        ("jvm", scene::jvm::run),
        ("postgres", scene::postgres::run),
        ("delay", scene::delay::run),
        ("shared", scene::shared::run),
        ("crowded", scene::crowded::run),
        ("pieces", scene::pieces::run),
        ("length", scene::length::run),
        ("traffic", scene::traffic::run),
        ("durable", scene::durable::run),
    ]
}

const PICTURE: &str = "docs/hand-off.svg";

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    allow_many_files()?;
    if let Some(Part::Hold {
        address,
        manner,
        number,
    }) = arguments.part
    {
        return scene::cut::hold(address, &manner, number);
    }
    keep_off_the_servers_core();
    let mut bench = Bench::new(arguments.quick, Scripts::newest().clone());
    bench.most_clients = arguments.clients.unwrap_or(bench.most_clients);
    if let Some(Part::Instructions) = arguments.part {
        return instructions::run(&bench, arguments.only.as_deref().unwrap_or_default());
    }
    if arguments.quick || arguments.only.is_some() {
        scenes().into_iter().try_for_each(|(name, run)| {
            let wanted = arguments.only.as_ref();
            let skipped = wanted.is_some_and(|wanted| !name.starts_with(wanted.as_str()));
            if skipped { Ok(()) } else { run(&mut bench) }
        })?;
        bench.end();
        println!("{}", bench.report.markdown());
        return Ok(());
    }
    everything(&mut bench)
}

/// Runs all scenes, and writes the report if no other work ran.
fn everything(bench: &mut Bench) -> Result<()> {
    let mut loudest: f64 = 0.0;
    let scenes = scenes();
    let of = scenes.len() as u64;
    for (index, (name, run)) in (0..).zip(scenes) {
        let others = quiet::other_work()?;
        if index == 0 && others > quiet::MOST {
            bail!("{}", loud(others));
        }
        loudest = loudest.max(others);
        bench.begin(name, index, of);
        run(bench)?;
    }
    loudest = loudest.max(quiet::other_work()?);
    bench.end();
    println!("{}", bench.report.markdown());
    if loudest > quiet::MOST {
        bail!("{}", loud(loudest));
    }
    let picture = "![Hand-offs a second by the number of clients](hand-off.svg)\n";
    bench.report.write(".".as_ref(), loudest, picture)?;
    let axes = ["clients", "hand-offs a second"];
    plot::draw(
        PICTURE.as_ref(),
        "Hand-offs of one lock",
        axes,
        &bench.lines,
    )?;
    println!("Written: docs/benchmarks.md, {PICTURE}.");
    Ok(())
}

fn loud(others: f64) -> String {
    format!(
        "Other work took {others:.2} of a core between scenes; docs/benchmarks.md is only written where it takes at \
         most {}. --only and --quick print what they measure.",
        quiet::MOST
    )
}

/// Servers run on the first core. With only one core, or without the permission to choose, figures are noisy.
fn keep_off_the_servers_core() {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut others = CpuSet::new();
    let set = (1..cores).try_for_each(|core| others.set(core));
    if cores > 1 && set.is_ok() {
        let _ = sched_setaffinity(Pid::from_raw(0), &others);
    }
}

/// Ten thousand connections take as many files, here and in the server.
fn allow_many_files() -> Result<()> {
    const NEEDED: u64 = 16_000;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < NEEDED {
        let wanted = hard.max(NEEDED);
        if setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted).is_err() {
            bail!("{NEEDED} open files are needed, {hard} are allowed: see ulimit -n");
        }
    }
    Ok(())
}
