//! The servers that are measured.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, bail};
use fairlock_testing::lua;
use fairlock_testing::redisson::harvest::script;
use fairlock_testing::{self as testing, Launch};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use redis::Connection;

use crate::ring::retrying::RELEASE;

/// Its clients have the other core, see `main`.
const OPTIONS: [&str; 4] = ["--maxclients", "15000", "--server_cpulist", "0"];

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

/// A running server; ends when dropped.
pub struct Server {
    server: testing::Server,
    admin: Connection,
}

impl Server {
    /// Starts one, which knows the scripts of its clients.
    pub fn start(kind: Kind) -> Result<Self> {
        Self::start_by(&[], kind, &[])
    }

    /// Starts one by another program, which gets the server's command line, with more options.
    pub fn start_by(by: &[&str], kind: Kind, options: &[&str]) -> Result<Self> {
        let options = [&OPTIONS[..], options].concat();
        let launch = match kind {
            Kind::Plain => Launch::plain(&options),
            Kind::Module => {
                Launch::with_module(&[&options[..], &["--fairlock.intercept-eval", "no"]].concat())
            }
            Kind::Intercepting => {
                Launch::with_module(&[&options[..], &["--fairlock.intercept-eval", "yes"]].concat())
            }
        };
        let server = testing::Server::launch(&launch.under(by));
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port))?;
        let admin = client.get_connection()?;
        let mut server = Self { server, admin };
        server.load()?;
        Ok(server)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.server.port).into()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Makes it know all scripts that clients send, as it does after their first use: Redisson's, the packages' and
    /// redis-py's.
    fn load(&mut self) -> Result<()> {
        let redissons = ["try-lock", "lock", "unlock"].into_iter();
        let texts = redissons.map(|role| &script(role).text[..]);
        let own = lua::SCRIPTS.iter().map(|script| script.text.as_bytes());
        for text in texts.chain(own).chain([RELEASE.as_bytes()]) {
            let _: String = self.run(&[b"SCRIPT", b"LOAD", text])?;
        }
        Ok(())
    }

    /// Runs a command on a connection for control.
    pub fn run<T: redis::FromRedisValue>(&mut self, words: &[&[u8]]) -> Result<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        Ok(command.query(&mut self.admin)?)
    }

    /// Clients that it blocks now.
    pub fn blocked(&self) -> Result<u32> {
        Ok(self.server.blocked().try_into()?)
    }

    /// Ends it as SHUTDOWN does, and waits until it has.
    pub fn shut_down(mut self) -> Result<()> {
        self.server.signal("TERM");
        match self.server.exit_code() {
            Some(0) => Ok(()),
            code => bail!("the server has ended with {code:?}"),
        }
    }

    /// The processor time of all its threads so far, in seconds. The server takes no notice of the question.
    pub fn process_cpu(&self) -> Result<f64> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?);
        let time = clock_gettime(clock_getcpuclockid(pid)?)?;
        Ok(Duration::from(time).as_secs_f64())
    }
}
