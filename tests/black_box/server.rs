//! A real redis-server with the module, for one test.
//!
//! Each server has a port chosen by the system and a temporary directory of its own, and is ended
//! by its own handle, so tests run in parallel.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::{Blocked, Client};

/// The program that servers run under, with its options, if `FAIRLOCK_TEST_WRAPPER` names one: one
/// that checks their memory (`make test-valgrind`). What it finds it writes to standard error, in
/// lines that begin with `==`.
fn wrapper() -> Vec<String> {
    let wrapper = std::env::var("FAIRLOCK_TEST_WRAPPER").unwrap_or_default();
    wrapper.split_whitespace().map(str::to_owned).collect()
}

/// The module that servers load, if `FAIRLOCK_TEST_MODULE` names one: one for an emulated server, of a
/// kind of machine that the tests themselves are not built for (`make test-arm64`).
fn foreign_module() -> Option<PathBuf> {
    std::env::var_os("FAIRLOCK_TEST_MODULE").map(PathBuf::from)
}

/// Longest a condition may take before the test is given up. Only ever reached on failure. A server
/// under a wrapper, or an emulated one, is slow.
pub fn give_up() -> Duration {
    let is_slow = !wrapper().is_empty() || foreign_module().is_some();
    Duration::from_secs(if is_slow { 300 } else { 30 })
}

/// Waits until a condition holds.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let (start, longest) = (Instant::now(), give_up());
    while !condition() {
        assert!(start.elapsed() < longest, "still not so: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The module as this test run has built it, unless it is to be another.
fn module() -> PathBuf {
    let module = foreign_module().unwrap_or_else(|| {
        let test = std::env::current_exe().expect("the path of this test");
        let deps = test.parent().expect("the folder of this test");
        deps.join("libfairlock.so")
    });
    assert!(module.exists(), "no module at {}", module.display());
    module
}

/// A server process; killed when dropped.
pub struct Server {
    process: Child,
    pub port: u16,
    dir: TempDir,
    options: Vec<String>,
    /// Whether its wall clock goes by the file `clock`.
    movable_clock: bool,
}

/// The library that lets a test set the wall clock of one process, built into a directory.
pub fn clock_library(dir: &Path) -> PathBuf {
    library("movable_clock", dir)
}

/// A library of the tests' own, built into a directory.
pub fn library(name: &str, dir: &Path) -> PathBuf {
    let library = dir.join(format!("{name}.so"));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/black_box");
    let source = sources.join(format!("{name}.c"));
    let built = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    assert!(built.expect("a C compiler").success());
    library
}

impl Server {
    /// With the module, and no persistence.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With the module and options such as `--appendonly yes`.
    pub fn with(options: &[&str]) -> Self {
        let module = module();
        let mut all = vec!["--loadmodule", module.to_str().expect("a UTF-8 path")];
        all.extend(options);
        Self::without_module(&all)
    }

    /// A plain server; the first option can be the path of a configuration file.
    pub fn without_module(options: &[&str]) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        Self::in_dir(dir, options, false)
    }

    /// With the module and options, and a wall clock that [`Server::set_clock`] can set.
    pub fn with_movable_clock(options: &[&str]) -> Self {
        let module = module();
        let mut all = vec!["--loadmodule", module.to_str().expect("a UTF-8 path")];
        all.extend(options);
        let dir = TempDir::new().expect("a temporary directory");
        fs::write(dir.path().join("clock"), 0_i64.to_ne_bytes()).expect("written");
        Self::in_dir(dir, &all, true)
    }

    /// Sets the server's wall clock so many seconds ahead of this machine's, or behind.
    pub fn set_clock(&self, seconds: i64) {
        // In place: the server has the file mapped.
        let path = self.dir().join("clock");
        let clock = fs::File::options().write(true).open(path);
        let mut clock = clock.expect("the clock");
        clock.write_all(&seconds.to_ne_bytes()).expect("written");
    }

    /// A server on what another one left in its directory.
    fn in_dir(dir: TempDir, options: &[&str], movable_clock: bool) -> Self {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        // The port is free when it is chosen, and somebody may be faster: then the next one.
        for _ in 0..20 {
            let (process, port) = spawn(dir.path(), &options, movable_clock);
            let mut server = Self {
                process,
                port,
                dir: TempDir::new().expect("a temporary directory"),
                options: options.clone(),
                movable_clock,
            };
            if server.is_up() {
                server.dir = dir;
                return server;
            }
        }
        panic!("redis-server does not start:\n{}", log(dir.path()));
    }

    /// Waits until it answers, with its data loaded. False if it has ended, or is not ours.
    fn is_up(&mut self) -> bool {
        let ours = format!("process_id:{}\r", self.process.id());
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
            if let Ok(mut connection) = client.get_connection() {
                let info = redis::cmd("INFO").query::<String>(&mut connection);
                let info = info.unwrap_or_default();
                // Another server could have taken the port.
                if info.contains("process_id:") && !info.contains(&ours) {
                    return false;
                }
                if info.contains(&ours) && info.contains("\nloading:0\r") {
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

    /// Sends a command that is expected to block, on a connection of its own, and waits until the
    /// server has blocked it.
    pub fn block(&self, command: &str) -> Blocked {
        let blocked = Blocked::send(self.port, command);
        let mut client = self.connect();
        let list = format!("CLIENT LIST ID {}", blocked.id);
        wait_until(command, || {
            client.text(&list).contains(" flags=b ") || blocked.is_done()
        });
        blocked
    }

    /// Clients blocked now.
    pub fn blocked(&self) -> usize {
        self.info("clients", "blocked_clients")
            .parse()
            .expect("a number")
    }

    /// Where the module is that it has loaded.
    pub fn module_path(&self) -> String {
        let list = self.connect().run("MODULE LIST");
        // Newer servers bring modules of their own.
        let paths = list
            .split("path, ")
            .filter_map(|rest| rest.split(',').next());
        let ours = paths.filter(|path| path.ends_with("libfairlock.so")).last();
        ours.expect("a path").to_owned()
    }

    /// A field of INFO.
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.connect().text(&format!("INFO {section}"));
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{field}:")));
        line.unwrap_or_default().to_owned()
    }

    /// Whether it knows the ACL categories of a module's commands, and tells a module that looks at
    /// commands whose they are: Redis does since 7.2, and all of Valkey, which calls itself 7.2.4.
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

    /// Stops the process in its tracks, does something, and lets it go on: whatever was sent
    /// meanwhile reaches it in one turn of its event loop.
    pub fn while_stopped<T>(&self, body: impl FnOnce() -> T) -> T {
        self.signal("STOP");
        // The signal was sent; until it is acted on, the process can still take part of what comes.
        let stat = format!("/proc/{}/stat", self.process.id());
        wait_until("the server has stopped", || {
            let stat = fs::read_to_string(&stat).expect("its state");
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" T"))
        });
        let result = body();
        self.signal("CONT");
        result
    }

    /// What a connection has sent and the server has not read yet: how many bytes, and whether it
    /// was closed after them. The connection is given by the port at its other end.
    pub fn unread(&self, from: u16) -> (usize, bool) {
        const CLOSE_WAIT: &str = "08";
        let table = fs::read_to_string("/proc/net/tcp").expect("the connections");
        let ends = [self.port, from].map(|port| format!(":{port:04X}"));
        // Number, this end, the other end, state, bytes to be sent and to be read, ...
        let mut sockets = table.lines().map(|line| line.split_whitespace().collect());
        let ours = sockets.find(|fields: &Vec<&str>| {
            fields[1].ends_with(&ends[0]) && fields[2].ends_with(&ends[1])
        });
        let socket = ours.expect("a connection");
        let (_, unread) = socket[4].split_once(':').expect("two numbers");
        let unread = usize::from_str_radix(unread, 16).expect("a number");
        (unread, socket[3] == CLOSE_WAIT)
    }

    /// Sends the process a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let (flag, pid) = (format!("-{name}"), self.process.id().to_string());
        let status = Command::new("kill").args([flag, pid]).status();
        assert!(status.expect("kill is there").success());
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the process has ended by itself; its exit code, if it was not a signal's doing.
    pub fn exit_code(&mut self) -> Option<i32> {
        let mut ended = None;
        wait_until("the server has ended", || {
            ended = self.process.try_wait().expect("the server's state");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }

    /// Kills the server without warning, and starts it again on what is on disk.
    pub fn kill_and_restart(mut self) -> Self {
        self.kill();
        let options = self.options.clone();
        self.reopen(&options)
    }

    /// Kills the server, and starts one without the module on what is on disk.
    pub fn kill_and_restart_without_module(mut self, options: &[&str]) -> Self {
        self.kill();
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        self.reopen(&options)
    }

    fn reopen(mut self, options: &[String]) -> Self {
        let dir = std::mem::replace(&mut self.dir, TempDir::new().expect("a directory"));
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Self::in_dir(dir, &options, self.movable_clock)
    }

    fn kill(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.check_findings();
    }

    /// Has the server end by itself, so that its wrapper tells what has leaked.
    fn end(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.signal("TERM");
            let start = Instant::now();
            while matches!(self.process.try_wait(), Ok(None)) && start.elapsed() < give_up() {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Whatever the wrapper has found fails the test.
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
    wait_until("the replica is up to date", || {
        replica.info("replication", "master_link_status") == "up"
            && master
                .info("replication", "slave0")
                .contains("state=online")
    });
}

fn log(dir: &Path) -> String {
    let read = |name| fs::read_to_string(dir.join(name)).unwrap_or_default();
    read("errors") + &read("log")
}

fn spawn(dir: &Path, options: &[String], movable_clock: bool) -> (Child, u16) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = free.local_addr().expect("its address").port();
    drop(free);
    let mut words = wrapper();
    words.push("redis-server".to_owned());
    let mut command = Command::new(&words[0]);
    // As it is set on many machines: a panic must not end the server for it.
    command.args(&words[1..]).env("RUST_BACKTRACE", "1");
    if movable_clock {
        command
            .env("LD_PRELOAD", clock_library(dir))
            .env("MOVABLE_CLOCK", dir.join("clock"));
    }
    let errors = fs::File::create(dir.join("errors")).expect("a file");
    // A configuration file comes before all options.
    let has_file = options.first().is_some_and(|first| !first.starts_with('-'));
    let (file, options) = options.split_at(usize::from(has_file));
    let process = command
        .args(file)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--logfile", "log", "--maxclients", "20000"])
        .arg("--dir")
        .arg(dir)
        .args(options)
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .expect("redis-server is installed");
    (process, port)
}
