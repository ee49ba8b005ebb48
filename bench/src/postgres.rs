//! A PostgreSQL server, for its advisory locks. It is measured where it is installed, and by its own
//! pgbench.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::unistd::{Uid, User};
use tempfile::TempDir;

use crate::bench::Sample;

/// Gives the lock back and asks again, in one write, as other clients do here. The first of a
/// client's questions gives back what it has not got, which is only a warning.
const SCRIPT: &str = "SELECT pg_advisory_unlock(1)\\; SELECT pg_advisory_lock(1);\n";
/// How many hand-offs are measured each time: a second of processor time, or more.
const TIMES: u32 = 24_000;
/// The one that never runs as root.
const USER: &str = "postgres";
/// The unit of times in /proc (proc(5)).
const TICK: f64 = 0.01;

/// A running server; ends when dropped.
pub struct Postgres {
    programs: PathBuf,
    directory: TempDir,
    pid: u32,
}

/// The folder of the newest release that is installed, if any is.
pub fn installed() -> Option<PathBuf> {
    let releases = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = releases.filter_map(|release| Some(release.ok()?.path().join("bin")));
    let complete = |folder: &PathBuf| {
        let programs = ["initdb", "pg_ctl", "postgres", "pgbench"];
        programs.iter().all(|program| folder.join(program).exists())
    };
    folders.filter(complete).max()
}

impl Postgres {
    /// Starts a server on the first core, as all servers here.
    pub fn start(programs: &Path) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        if Uid::effective().is_root() {
            let user = User::from_name(USER)?.context("no user postgres")?;
            let (user, group) = (user.uid.as_raw(), user.gid.as_raw());
            chown(directory.path(), Some(user), Some(group))?;
        }
        let mut server = Self {
            programs: programs.to_owned(),
            directory,
            pid: 0,
        };
        let data = server.path("data");
        server.run("initdb", &["-D", &data, "-A", "trust", "--no-sync"])?;
        let sockets = server.path("");
        let options = format!("-c listen_addresses= -c unix_socket_directories={sockets}");
        // Background work of the server would be counted as the locks'.
        let options = format!("{options} -c fsync=off -c autovacuum=off -c max_connections=150");
        let log = server.path("log");
        server.run(
            "pg_ctl",
            &["start", "-w", "-D", &data, "-l", &log, "-o", &options],
        )?;
        let pid = std::fs::read_to_string(server.path("data/postmaster.pid"))?;
        server.pid = pid.lines().next().context("a process")?.parse()?;
        std::fs::write(server.path("script"), SCRIPT)?;
        Ok(server)
    }

    /// Measures hand-offs among a number of clients. Starting and ending the clients' processes is left out by
    /// comparing a run with a longer one.
    pub fn hand_off(&self, clients: u32) -> Result<Sample> {
        let run = |each: u32| {
            let (cpu, start) = (self.cpu()?, Instant::now());
            self.bench(clients, each)?;
            let elapsed = start.elapsed().as_secs_f64();
            anyhow::Ok((self.cpu()? - cpu, elapsed, f64::from(clients * each)))
        };
        let each = TIMES / clients;
        let (short_cpu, short, few) = run(each / 5)?;
        let (long_cpu, long, many) = run(each)?;
        Ok(Sample {
            rate: (many - few) / (long - short),
            cpu: (long_cpu - short_cpu) * 1e6 / (many - few),
        })
    }

    fn bench(&self, clients: u32, each: u32) -> Result<()> {
        let (clients, each) = (clients.to_string(), each.to_string());
        let [sockets, script] = [self.path(""), self.path("script")];
        let status = Command::new(self.programs.join("pgbench"))
            .args(["-n", "-h", &sockets, "-U", USER, "-f", &script])
            .args(["-c", &clients, "-j", "1", "-t", &each, "postgres"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            bail!("pgbench: {status}");
        }
        Ok(())
    }

    /// Seconds of all clients' processes, once they have ended.
    fn cpu(&self) -> Result<f64> {
        self.wait_for_clients()?;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        // The second field is the program's name, in parentheses; 14 to 17 are the times.
        let (_, fields) = stat.rsplit_once(')').context("a process's state")?;
        let times = fields.split_whitespace().skip(11).take(4);
        let ticks: Result<Vec<f64>, _> = times.map(str::parse::<f64>).collect();
        Ok(ticks?.into_iter().sum::<f64>() * TICK)
    }

    fn wait_for_clients(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(10);
        while self.clients()? > 0 {
            if Instant::now() > end {
                bail!("clients of PostgreSQL do not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Processes that serve a client. Their titles name it, as in "postgres: postgres postgres \[local\] idle"; those
    /// of the server's own end with what they are.
    fn clients(&self) -> Result<usize> {
        let children = format!("/proc/{0}/task/{0}/children", self.pid);
        let children = std::fs::read_to_string(children)?;
        let titles = children.split_whitespace().map(|pid| {
            // It may have ended by now.
            std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
        });
        Ok(titles.filter(|title| title.contains("[local]")).count())
    }

    /// Runs one of its programs, as its user.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let program = self.programs.join(program);
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]);
        if Uid::effective().is_root() {
            command.args(["runuser", "-u", USER, "--"]);
        }
        let output = command
            .arg(&program)
            .args(arguments)
            .current_dir(self.directory.path())
            .stdout(Stdio::null())
            .status()
            .with_context(|| program.display().to_string())?;
        if !output.success() {
            bail!("{}: {output}", program.display());
        }
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It has nothing to save. An error means that it has ended already.
        let data = self.path("data");
        let _ = self.run("pg_ctl", &["stop", "-D", &data, "-m", "immediate"]);
    }
}
