//! Real Redisson clients: what their users get from loading the module, and from interception. A JVM runs
//! `java/Throughput.java`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use fairlock_testing::redisson::{NEWEST, folder};

use crate::bench::{Bench, Contest, Sample};
use crate::report::{show, spread};
use crate::server::{Kind, Server};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/java/Throughput.java");

/// All cores there are; taskset leaves out those that are not.
const ALL_CORES: &str = "0-1023";

const SERVERS: [Kind; 3] = [Kind::Plain, Kind::Module, Kind::Intercepting];

/// What is compared: the kind of lock, and its server by its place among [`SERVERS`].
const CONTESTANTS: [(&str, usize); 4] = [("fair", 0), ("fair", 1), ("fair", 2), ("plain", 0)];

/// What threads do: how many there are, and whether they want one lock or each its own.
const LOADS: [(&str, usize, &str); 4] = [
    ("1 thread", 1, "one"),
    ("8 threads on one lock", 8, "one"),
    ("64 threads on one lock", 64, "one"),
    ("64 threads, each with a lock of its own", 64, "own"),
];

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    if bench.quick {
        // A JVM takes longer to warm up than a quick run may last.
        return Ok(());
    }
    let servers: Result<Vec<Server>> = SERVERS.iter().map(|kind| Server::start(*kind)).collect();
    let servers = servers?;
    let mut jvm = Jvm::start(&servers)?;
    let mut contests: Vec<[Contest; CONTESTANTS.len()]> = vec![Default::default(); LOADS.len()];
    // In round 0 the JVM's compiler gets warm. Another contestant begins in each round, because the first one after
    // another load has an advantage.
    for round in 0..=bench.rounds {
        for ((what, threads, locks), contests) in LOADS.into_iter().zip(&mut contests) {
            for place in 0..CONTESTANTS.len() {
                let place = (place + round) % CONTESTANTS.len();
                let (maker, client) = CONTESTANTS[place];
                eprintln!("Redisson in a JVM, {what}, round {round}");
                let time = 3 * bench.window.as_millis();
                let order = format!("{client} {threads} {locks} {maker} {time}");
                let sample = jvm.run(&order, &servers[client])?;
                if round > 0 {
                    contests[place].push(sample);
                }
            }
        }
    }
    let rows = LOADS.iter().zip(&contests).map(|((name, ..), contests)| {
        let [plain, others @ ..] = contests;
        let mut row = vec![(*name).to_owned(), spread(&plain.rate)];
        row.extend(
            others
                .each_ref()
                .map(|other| show(other.rate.by(&plain.rate))),
        );
        row.push(
            contests
                .each_ref()
                .map(|one| show(one.cpu.median()))
                .join(" / "),
        );
        row
    });
    let text = format!(
        "Redisson {NEWEST} with its default settings. A pair is lock() and unlock(), back to back. The next three \
         columns are the pairs of the others ÷ those of the first; the last has the CPU of all four, in the same order."
    );
    let header = [
        "threads",
        "getFairLock, no module: pairs a second",
        "interception off",
        "on",
        "getLock (not fair)",
        "CPU of a pair",
    ];
    let rows: Vec<Vec<String>> = rows.collect();
    bench
        .report
        .table("Real Redisson clients", &text, &header, &rows);
    Ok(())
}

/// The JVM; killed when dropped.
struct Jvm {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Jvm {
    /// Starts one with a client of Redisson's newest release for each server.
    fn start(servers: &[Server]) -> Result<Self> {
        let jars = format!("{}/*", folder(NEWEST).display());
        let addresses = servers.iter().map(Server::address);
        // Unlike the other clients it takes more time than the server: limited to the other cores, it would be the
        // bottleneck.
        let mut child = Command::new("taskset")
            .args(["-c", ALL_CORES, "java", "-Xmx512m", "-cp", &jars, SOURCE])
            .args(addresses.map(|address| format!("redis://{address}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It says that no logger is configured.
            .stderr(Stdio::null())
            .spawn()
            .context("starting java")?;
        let input = child.stdin.take().context("a pipe")?;
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut jvm = Self {
            child,
            input,
            output,
        };
        jvm.expect("ready")?;
        Ok(jvm)
    }

    /// Lets threads of a client lock and unlock for a time; `server` is the one of that client.
    fn run(&mut self, order: &str, server: &Server) -> Result<Sample> {
        writeln!(self.input, "{order}")?;
        self.expect("begin")?;
        let cpu = server.process_cpu()?;
        let line = self.line()?;
        let cpu = server.process_cpu()? - cpu;
        let (pairs, nanos) = line.split_once(' ').context("pairs and nanoseconds")?;
        let (pairs, nanos): (f64, f64) = (pairs.parse()?, nanos.parse()?);
        self.expect("rest")?;
        Ok(Sample {
            rate: pairs * 1e9 / nanos,
            cpu: cpu * 1e6 / pairs,
        })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the JVM has ended: {:?}", self.child.wait()?);
        }
        Ok(line.trim_end().to_owned())
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        let line = self.line()?;
        if line != wanted {
            bail!("the JVM said {line:?} where {wanted:?} was expected");
        }
        Ok(())
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
