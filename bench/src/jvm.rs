//! Real Redisson clients: a JVM that runs `java/Throughput.java`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fairlock_testing::redisson::{NEWEST, folder};
use tempfile::TempDir;

use crate::server::Server;

const SOURCE: &str = include_str!("../java/Throughput.java");

/// All cores there are; taskset leaves out those that are not.
const ALL_CORES: &str = "0-1023";

/// The JVM; killed when dropped.
pub struct Jvm {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _classes: TempDir,
}

/// What threads did in some time.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// Pairs of lock and unlock a second.
    pub rate: f64,
    /// Microseconds of the server's process for each.
    pub cpu: f64,
    /// Scripts that the server was sent for each, natively run or not.
    pub scripts: f64,
}

/// Which locks threads take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// All of them the same.
    One,
    /// Each its own.
    Own,
}

/// Which of Redisson's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// `getFairLock`.
    Fair,
    /// `getLock`, which hands the lock to any of those that wait.
    Plain,
}

impl Jvm {
    /// Starts one with a client of Redisson's newest release for each server.
    pub fn start(servers: &[Server]) -> Result<Self> {
        let jars = format!("{}/*", folder(NEWEST).display());
        let classes = compile(&jars)?;
        let path = format!("{}:{jars}", classes.path().display());
        let addresses = servers.iter().map(Server::address);
        // Unlike the other clients it takes more time than the server: limited to the other cores, it would be the
        // bottleneck.
        let mut child = Command::new("taskset")
            .args(["-c", ALL_CORES, "java"])
            .args(["-Xmx512m", "-cp", &path, "Throughput"])
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
            _classes: classes,
        };
        jvm.expect("ready")?;
        Ok(jvm)
    }

    /// Lets threads of a client lock and unlock for a time; `server` is the one of that client.
    pub fn run(
        &mut self,
        client: usize,
        server: &mut Server,
        (threads, locks, maker): (usize, Locks, Maker),
        time: Duration,
    ) -> Result<Pairs> {
        let locks = match locks {
            Locks::One => "one",
            Locks::Own => "own",
        };
        let maker = match maker {
            Maker::Fair => "fair",
            Maker::Plain => "plain",
        };
        let time = time.as_millis();
        writeln!(self.input, "{client} {threads} {locks} {maker} {time}")?;
        self.expect("begin")?;
        let (cpu, scripts) = (server.process_cpu()?, scripts(server)?);
        let line = self.line()?;
        let (cpu, scripts) = (
            server.process_cpu()? - cpu,
            self::scripts(server)? - scripts,
        );
        let (pairs, nanos) = line.split_once(' ').context("pairs and nanoseconds")?;
        let (pairs, nanos): (f64, f64) = (pairs.parse()?, nanos.parse()?);
        self.expect("rest")?;
        Ok(Pairs {
            rate: pairs * 1e9 / nanos,
            cpu: cpu * 1e6 / pairs,
            scripts: scripts / pairs,
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

fn compile(jars: &str) -> Result<TempDir> {
    let directory = tempfile::tempdir()?;
    let source = directory.path().join("Throughput.java");
    std::fs::write(&source, SOURCE)?;
    let status = Command::new("javac")
        .args(["-nowarn", "-cp", jars, "-d"])
        .arg(directory.path())
        .arg(source)
        .status()
        .context("starting javac")?;
    if !status.success() {
        bail!("javac: {status}");
    }
    Ok(directory)
}

/// How many scripts a server has been sent.
fn scripts(server: &mut Server) -> Result<f64> {
    let info: String = server.run(&[b"INFO", b"commandstats"])?;
    Ok(scripts_in(&info))
}

/// Intercepted ones are counted under the module's commands.
fn scripts_in(info: &str) -> f64 {
    let calls = info.lines().filter_map(|line| {
        let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let script = matches!(name.rsplit('.').next()?, "eval" | "evalsha");
        let calls = figures.split(',').next()?.parse::<f64>().ok()?;
        script.then_some(calls)
    });
    calls.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_counted_by_both_names() {
        let info = "# Commandstats\r\ncmdstat_evalsha:calls=3,usec=1\r\ncmdstat_del:calls=5,usec=1\r\n\
                    cmdstat_fairlock.evalsha:calls=20,usec=1\r\ncmdstat_script|load:calls=7,usec=1\r\n";
        assert!((scripts_in(info) - 23.0).abs() < 1e-9);
    }
}
