//! The servers that are measured: each its own process, port and directory.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use redis::Connection;
use tempfile::TempDir;

use crate::redisson::Scripts;

/// What a server is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The server as it comes.
    Plain,
    /// With the module.
    Module,
    /// With the module, Redisson's scripts intercepted.
    Intercepting,
}

/// The module that is measured.
pub fn module() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let directory = program.parent().context("a directory")?;
    let module = directory.join("libfairlock.so");
    if !module.exists() {
        bail!("{} is missing: build it first", module.display());
    }
    Ok(module)
}

/// A running server; ends when dropped.
pub struct Server {
    child: Child,
    directory: TempDir,
    address: SocketAddr,
    admin: Connection,
}

impl Server {
    /// Starts one, with more options for its command line.
    pub fn start(kind: Kind, options: &[&str]) -> Result<Self> {
        Self::start_by(&[], kind, options)
    }

    /// Starts one by another program, which is given the server's command line.
    pub fn start_by(by: &[&str], kind: Kind, options: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        // The port is free now; should somebody else take it before the server does, the server
        // does not start, and says so.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut line = by.iter().copied().chain(["redis-server"]);
        let mut command = Command::new(line.next().unwrap_or_default());
        command
            .args(line)
            .args(["--port", &address.port().to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--maxclients", "15000"])
            // Its clients have the other core, see `main`.
            .args(["--server_cpulist", "0"])
            .arg("--dir")
            .arg(directory.path())
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if kind != Kind::Plain {
            let intercepts = if kind == Kind::Intercepting {
                "yes"
            } else {
                "no"
            };
            command.arg("--loadmodule").arg(module()?);
            command.args(["--fairlock.intercept-eval", intercepts]);
        }
        let child = command.spawn().context("starting redis-server")?;
        let admin = connect(address)?;
        Ok(Self {
            child,
            directory,
            address,
            admin,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes it know Redisson's scripts, as it does after their first use.
    pub fn load(&mut self, scripts: &Scripts) -> Result<()> {
        for script in [&scripts.try_lock, &scripts.lock, &scripts.unlock] {
            let _: String = self.run(&[b"SCRIPT", b"LOAD", &script.text])?;
        }
        Ok(())
    }

    /// A command on a connection for such purposes.
    pub fn run<T: redis::FromRedisValue>(&mut self, words: &[&[u8]]) -> Result<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        Ok(command.query(&mut self.admin)?)
    }

    /// A number of INFO.
    pub fn info(&mut self, name: &str) -> Result<f64> {
        let info: String = self.run(&[b"INFO", b"everything"])?;
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        let line = lines.find(|(found, _)| *found == name);
        let (_, value) = line.with_context(|| format!("no {name} in INFO"))?;
        value.parse().with_context(|| format!("{name} is {value}"))
    }

    /// Ends it as SHUTDOWN does, and waits until it has.
    pub fn shut_down(mut self) -> Result<()> {
        // The answer to it is that the connection closes.
        let _ = self.run::<()>(&[b"SHUTDOWN", b"NOSAVE"]);
        self.child.wait()?;
        Ok(())
    }

    /// The processor time of its main thread so far, in seconds.
    pub fn cpu(&mut self) -> Result<f64> {
        let user = self.info("used_cpu_user_main_thread")?;
        Ok(user + self.info("used_cpu_sys_main_thread")?)
    }

    /// The processor time of all its threads so far, in seconds. The server takes no notice of the
    /// question.
    pub fn process_cpu(&self) -> Result<f64> {
        process_cpu(self.pid())
    }

    /// Waits until a number of INFO is as wanted.
    pub fn wait(&mut self, name: &str, wanted: impl Fn(f64) -> bool) -> Result<()> {
        let end = Instant::now() + Duration::from_mins(1);
        while !wanted(self.info(name)?) {
            if Instant::now() > end {
                bail!("{name} is {} after a minute", self.info(name)?);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to save. An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.directory.path();
    }
}

/// The processor time that a process has taken so far, in seconds.
pub fn process_cpu(pid: u32) -> Result<f64> {
    let pid = Pid::from_raw(i32::try_from(pid)?);
    let time = clock_gettime(clock_getcpuclockid(pid)?)?;
    Ok(Duration::from(time).as_secs_f64())
}

fn connect(address: SocketAddr) -> Result<Connection> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match client.get_connection() {
            Ok(connection) => return Ok(connection),
            Err(error) if Instant::now() > end => return Err(error).context("no server"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
