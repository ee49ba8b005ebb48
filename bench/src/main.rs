//! Measures fairlock beside Redisson's scripts and the server's own commands: what `make bench` and `make bench BENCH=--quick`
//! run.
//!
//! - [`crowd`]: a client of many connections that is never the limit;
//! - [`server`]: what is measured;
//! - [`pairs`], [`ring`]: what clients do;
//! - [`uncontended`], [`hand_off`], [`jvm`]: what is measured; [`instructions`]: counted, not timed;
//! - [`postgres`]: a database with a lock;
//! - [`bench`], [`report`], [`plot`]: contestants in turn, tables, the picture; [`quiet`]: whether the machine is idle.

// A measurement that cannot go on panics.
#![allow(clippy::indexing_slicing)]

mod bench;
mod crowd;
mod hand_off;
mod instructions;
mod jvm;
mod pairs;
mod plot;
mod postgres;
mod quiet;
mod report;
mod ring;
mod server;
mod uncontended;

use std::num::NonZero;

use anyhow::{Result, bail};
use clap::Parser;
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
    /// Only this scene (uncontended, hand-off, jvm), and nothing written. With `instructions`: only rows with this in
    /// their names.
    #[arg(long)]
    only: Option<String>,
    /// `instructions`: counts those of uncontended pairs and of hand-offs with callgrind instead.
    part: Option<String>,
}

type Scene = (&'static str, fn(&mut Bench) -> Result<()>);

const SCENES: [Scene; 3] = [
    ("uncontended", uncontended::run),
    ("hand-off", hand_off::run),
    ("jvm", jvm::run),
];

const PICTURE: &str = "docs/hand-off.svg";

fn main() -> Result<()> {
    let Arguments { quick, only, part } = Arguments::parse();
    allow_many_files()?;
    keep_off_the_servers_core();
    match part.as_deref() {
        Some("instructions") => {
            return instructions::run(only.as_deref().unwrap_or_default());
        }
        Some(other) => bail!("{other}: only instructions can be counted"),
        None => (),
    }
    let mut bench = Bench::new(quick);
    let is_written = !quick && only.is_none();
    let mut loudest: f64 = 0.0;
    for (name, run) in SCENES {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        if is_written {
            loudest = loudest.max(quiet::other_work()?);
        }
        run(&mut bench)?;
    }
    println!("{}", bench.report.markdown());
    if loudest > quiet::MOST {
        bail!(
            "Other work took {loudest:.2} of a core between scenes; docs/benchmarks.md is only written where it takes at \
             most {}.",
            quiet::MOST
        );
    }
    if is_written {
        bench.report.write(".".as_ref())?;
        let axes = ["clients", "hand-offs a second"];
        let title = "Hand-offs of one lock";
        plot::draw(PICTURE.as_ref(), title, axes, &bench.lines)?;
        println!("Written: docs/benchmarks.md, {PICTURE}.");
    }
    Ok(())
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
