//! A real redis-server, with the module or without.
//!
//! Each server has a port chosen by the system and a temporary directory of its own, and is ended
//! by its own handle, so tests run in parallel.

mod launch;
mod process;
mod tls;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::{Blocked, Client, Wire};
use crate::clock::MovableClock;
use crate::wait::{give_up, wait_until};

pub use launch::{FREE_PORT, Launch, module};
pub(crate) use launch::{foreign_module, wrapper};
pub use process::send_signal;

/// A server process; killed when dropped.
pub struct Server {
    process: Child,
    /// Its port on 127.0.0.1.
    pub port: u16,
    dir: TempDir,
    launch: Launch,
}

impl Server {
    /// With the module, and no persistence.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With the module and options such as `--appendonly yes`.
    pub fn with(options: &[&str]) -> Self {
        Self::launch(&Launch::with_module(options))
    }

    /// With the module; and a connection to it.
    pub fn connected() -> (Self, Client) {
        Self::connected_with(&[])
    }

    /// With the module and options; and a connection to it.
    pub fn connected_with(options: &[&str]) -> (Self, Client) {
        let server = Self::with(options);
        let client = server.connect();
        (server, client)
    }

    /// A plain server; the first option can be the path of a configuration file.
    pub fn without_module(options: &[&str]) -> Self {
        Self::launch(&Launch::plain(options))
    }

    /// Started in some way, in a directory of its own.
    pub fn launch(launch: &Launch) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        Self::in_dir(dir, launch)
    }

    /// With the module and options, and a wall clock that [`Server::set_clock`] can set.
    pub fn with_movable_clock(options: &[&str]) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let clock = MovableClock::new(dir.path());
        Self::in_dir(dir, &Launch::with_module(options).by(clock))
    }

    /// Sets the server's wall clock a number of seconds ahead of this machine's, or behind.
    pub fn set_clock(&self, seconds: i64) {
        let clock = self.launch.clock.as_ref();
        clock.expect("a clock that can be set").set(seconds);
    }

    /// A server with the data that another one left in its directory.
    fn in_dir(dir: TempDir, launch: &Launch) -> Self {
        // Another process may take the port after it was chosen: then the next one is tried.
        for _ in 0..20 {
            let (process, port) = launch.spawn(dir.path());
            let mut server = Self {
                process,
                port,
                dir: TempDir::new().expect("a temporary directory"),
                launch: launch.clone(),
            };
            if server.is_up() {
                server.dir = dir;
                return server;
            }
        }
        panic!("redis-server does not start:\n{}", log(dir.path()));
    }

    /// Waits until it answers, with its data loaded. False if it has ended, as where another process has its port.
    fn is_up(&mut self) -> bool {
        let own = format!("process_id:{}\r", self.process.id());
        let start = Instant::now();
        while start.elapsed() < give_up() {
            if self
                .process
                .try_wait()
                .expect("the server's state")
                .is_some()
            {
                return false;
            }
            let url = format!("redis://127.0.0.1:{}", self.port);
            let client = redis::Client::open(url).expect("a valid address");
            // Another program could have taken the port, and answer nothing.
            let limit = Duration::from_secs(5);
            if let Ok(mut connection) = client.get_connection_with_timeout(limit) {
                let _ = connection.set_read_timeout(Some(limit));
                let info = redis::cmd("INFO").query::<String>(&mut connection);
                let info = info.unwrap_or_default();
                if info.contains(&own) && info.contains("\nloading:0\r") {
                    return true;
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// A new connection, RESP2.
    pub fn connect(&self) -> Client {
        Client::new(self.port, 2)
    }

    /// A new connection, RESP3.
    pub fn connect_resp3(&self) -> Client {
        Client::new(self.port, 3)
    }

    /// A bare connection on which commands were sent, one a line.
    pub fn wire(&self, commands: &str) -> Wire {
        let mut wire = Wire::new(self.port);
        wire.send(commands);
        wire
    }

    /// Sends a command that is expected to block, on a connection of its own, and waits until the
    /// server has blocked it.
    pub fn block(&self, command: &str) -> Blocked {
        let blocked = Blocked::send(self.port, command);
        let mut client = self.connect();
        let list = format!("CLIENT LIST ID {}", blocked.id);
        wait_until(command, || {
            client.run(&list).contains(" flags=b ") || blocked.is_done()
        });
        blocked
    }

    /// Clients blocked now.
    pub fn blocked(&self) -> usize {
        self.info("clients", "blocked_clients")
            .parse()
            .expect("a number")
    }

    /// The path of the loaded module.
    pub fn module_path(&self) -> String {
        let list = self.connect().run("MODULE LIST");
        // Newer servers bring modules of their own.
        let paths = list
            .split("path, ")
            .filter_map(|rest| rest.split(',').next());
        let own = paths.filter(|path| path.ends_with("libfairlock.so")).last();
        own.expect("a path").to_owned()
    }

    /// A field of INFO.
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.connect().run(&format!("INFO {section}"));
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{field}:")));
        line.unwrap_or_default().to_owned()
    }

    /// Whether it takes writes of its own, not a master's.
    pub fn is_master(&self) -> bool {
        self.info("replication", "role") == "master"
    }

    /// A number in `INFO fairlock`, by its name without the prefix.
    #[track_caller]
    pub fn count(&self, name: &str) -> u64 {
        let count = self.info("fairlock", &format!("fairlock_{name}"));
        count.parse().expect("a number")
    }

    /// What the server counts of a command: `calls`, or the microseconds (`usec`) that they took.
    pub fn command_stat(&self, command: &str, field: &str) -> u64 {
        let stats = self.info("commandstats", &format!("cmdstat_{command}"));
        let field = format!("{field}=");
        let value = stats.split(',').find_map(|part| part.strip_prefix(&field));
        value.map_or(0, |value| value.parse().expect("a number"))
    }

    /// Whether it has ACL categories for a module's commands, and tells a module's command filter which client has sent
    /// a command. Redis does since 7.2, and Valkey in all versions: it calls itself 7.2.4.
    pub fn knows_7_2(&self) -> bool {
        !self.info("server", "redis_version").starts_with("7.0.")
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        log(self.dir.path())
    }

    /// The server's own directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills the server without warning, and starts it again with the data on disk.
    #[must_use]
    pub fn kill_and_restart(self) -> Self {
        let launch = self.launch.clone();
        self.kill_and_launch(&launch)
    }

    /// Kills the server, and starts one without the module with the data on disk.
    #[must_use]
    pub fn kill_and_restart_without_module(self, options: &[&str]) -> Self {
        let mut launch = Launch::plain(options);
        launch.clock.clone_from(&self.launch.clock);
        self.kill_and_launch(&launch)
    }

    fn kill_and_launch(mut self, launch: &Launch) -> Self {
        self.let_it_write();
        self.kill();
        let dir = std::mem::replace(&mut self.dir, TempDir::new().expect("a directory"));
        Self::in_dir(dir, launch)
    }

    /// Lets the server write to its file what it has replied to. With I/O threads, Redis 8.6 may reply before it
    /// writes, also with `appendfsync always`; a request that comes after such a reply is answered after the write.
    pub fn let_it_write(&self) {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return;
        };
        // A server that was stopped does not answer.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let _ = stream.write_all(b"PING\r\n");
        let _ = stream.read(&mut [0; 128]);
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.check_findings();
    }

    /// Has the server end by itself, so that its wrapper reports leaks.
    fn end(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.signal("TERM");
            let start = Instant::now();
            while matches!(self.process.try_wait(), Ok(None)) && start.elapsed() < give_up() {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Fails the test if the wrapper has found anything.
    fn check_findings(&self) {
        let errors = fs::read_to_string(self.dir().join("errors")).unwrap_or_default();
        let found = errors.lines().any(|line| line.starts_with("=="));
        assert!(
            wrapper().is_empty() || !found || thread::panicking(),
            "the server's wrapper has found something:\n{errors}"
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !wrapper().is_empty() && !thread::panicking() {
            self.end();
        }
        self.kill();
        if thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
    }
}

/// Makes a server the replica of another.
pub fn follow(replica: &Server, master: &Server) {
    // By default the master waits five seconds for more replicas to come.
    master
        .connect()
        .run("CONFIG SET repl-diskless-sync-delay 0");
    replica
        .connect()
        .run(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    let online = format!("port={},state=online", replica.port);
    wait_until("the replica is up to date", || {
        let known = master.connect().run("INFO replication");
        replica.info("replication", "master_link_status") == "up" && known.contains(&online)
    });
}

/// Waits until a replica has taken its master's place, and the master the replica's.
pub fn have_changed_roles(old: &Server, new: &Server) {
    wait_until("they have changed roles", || {
        new.is_master() && !old.is_master()
    });
}

fn log(dir: &Path) -> String {
    let read = |name| fs::read_to_string(dir.join(name)).unwrap_or_default();
    read("errors") + &read("log")
}
