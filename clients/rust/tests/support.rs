//! Servers by clients/testing/servers, plain clients that look at them, and the package's two kinds of locks behind one face.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::Deref;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::time::{Duration, Instant};

use fairlock::testing::{Control, FakeAioLocks, FakeLocks};
use fairlock::{Cause, Info, Options, Result, aio};
use redis::{Connection, FromRedisValue, RedisConnectionInfo, ToRedisArgs, Value};
use tokio::runtime::Runtime;

pub const LONGEST: Duration = Duration::from_secs(60);
pub const AT_ONCE: Duration = Duration::from_secs(20);
pub const LONG: Duration = Duration::from_secs(120);
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

pub struct Servers {
    process: Child,
    channel: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    pub ports: HashMap<String, u16>,
}

impl Servers {
    pub fn new(arguments: &[&str]) -> Self {
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/servers");
        let program = std::env::var("FAIRLOCK_SERVERS").unwrap_or_else(|_| beside.to_owned());
        let mut command = Command::new(program);
        let piped = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = piped.spawn().expect("clients/testing/servers starts");
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut ports = HashMap::new();
        loop {
            let mut line = String::new();
            assert_ne!(
                output.read_line(&mut line).unwrap(),
                0,
                "no servers: see standard error"
            );
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [name, port, _] => ports.insert(name.to_owned(), port.parse().unwrap()),
                _ => break,
            };
        }
        Self {
            process,
            channel: Mutex::new((input, output)),
            ports,
        }
    }

    pub fn tell(&self, words: &str) -> String {
        let (input, output) = &mut *self.channel.lock().unwrap();
        writeln!(input, "{words}").unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).unwrap();
        answer
            .strip_prefix("ok")
            .unwrap_or_else(|| panic!("{words}: {answer}"))
            .trim()
            .to_owned()
    }

    pub fn view(&self, name: &str) -> View {
        View::at(&self.url(name))
    }

    pub fn url(&self, name: &str) -> String {
        format!("redis://127.0.0.1:{}", self.ports[name])
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The end of its input ends the servers.
        let (mut nothing, _) = (
            Command::new("true").stdin(Stdio::piped()).spawn().unwrap(),
            (),
        );
        let stdin = nothing.stdin.take().unwrap();
        drop(std::mem::replace(
            &mut self.channel.get_mut().unwrap().0,
            stdin,
        ));
        nothing.wait().unwrap();
        self.process.wait().unwrap();
    }
}

/// What a server has to say about its locks.
pub struct View {
    client: redis::Client,
    connection: Mutex<Connection>,
}

impl View {
    pub fn at(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        let connection = Mutex::new(client.get_connection().unwrap());
        Self { client, connection }
    }

    pub fn run<T: FromRedisValue>(&self, words: &[&dyn Word]) -> T {
        self.try_run(words).unwrap()
    }

    pub fn try_run<T: FromRedisValue>(&self, words: &[&dyn Word]) -> redis::RedisResult<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word.text());
        }
        let mut connection = self.connection.lock().unwrap();
        let reply = command.query(&mut *connection);
        match reply {
            // A Sentinel ends the connections to a server whose role it changes.
            Err(error) if error.is_io_error() => {
                *connection = self.client.get_connection()?;
                command.query(&mut *connection)
            }
            reply => reply,
        }
    }

    pub fn info(&self, name: &str) -> HashMap<String, Value> {
        self.run(&[&"FAIRLOCK.INFO", &name])
    }

    pub fn number(&self, name: &str, field: &str) -> i64 {
        redis::from_redis_value_ref(&self.info(name)[field]).unwrap()
    }

    pub fn owner(&self, name: &str) -> Option<String> {
        redis::from_redis_value_ref(&self.info(name)["owner"]).unwrap()
    }

    pub fn is_free(&self, name: &str) -> bool {
        self.owner(name).is_none()
    }

    pub fn queue(&self, name: &str) -> Vec<String> {
        let queue: Vec<Vec<Value>> = self.run(&[&"FAIRLOCK.QUEUE", &name]);
        queue
            .iter()
            .map(|waiter| redis::from_redis_value_ref(&waiter[0]).unwrap())
            .collect()
    }

    /// So many wait, each on a connection of its own.
    pub fn are_blocked(&self, name: &str, count: usize) -> bool {
        let queue: Vec<Vec<String>> = self
            .try_run(&[&"FAIRLOCK.QUEUE", &name])
            .unwrap_or_default();
        queue.len() == count && queue.iter().all(|waiter| waiter[1] == "blocked")
    }

    pub fn waits(&self, name: &str, count: usize) {
        until(&format!("{count} wait"), || self.are_blocked(name, count));
    }

    pub fn calls(&self, command: &str) -> u64 {
        let stats: String = self.run(&[&"INFO", &"commandstats"]);
        let prefix = format!("cmdstat_fairlock.{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }

    /// All connections but this one.
    pub fn clients(&self) -> Vec<String> {
        let me: i64 = self.run(&[&"CLIENT", &"ID"]);
        let all: String = self.run(&[&"CLIENT", &"LIST"]);
        all.lines()
            .filter(|line| !line.starts_with(&format!("id={me} ")))
            .map(str::to_owned)
            .collect()
    }
}

pub fn client_id(line: &str) -> String {
    line[3..line.find(' ').unwrap()].to_owned()
}

pub trait Word {
    fn text(&self) -> Vec<Vec<u8>>;
}

impl<T: ToRedisArgs> Word for T {
    fn text(&self) -> Vec<Vec<u8>> {
        self.to_redis_args()
    }
}

pub fn until(what: &str, condition: impl FnMut() -> bool) {
    within(LONGEST, what, condition);
}

pub fn within(longest: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + longest;
    while !condition() {
        assert!(Instant::now() < end, "still not so: {what}");
        pause(5);
    }
}

pub fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Runs a test for both kinds of locks.
pub fn both(test: impl Fn(Kind)) {
    test(Kind::Threads);
    test(Kind::Tasks);
}

/// The same for tests that take long.
pub fn both_at_once(test: impl Fn(Kind) + Sync) {
    std::thread::scope(|scope| {
        let tasks = scope.spawn(|| test(Kind::Tasks));
        test(Kind::Threads);
        tasks.join().expect("the same with tasks");
    });
}

/// Runs `child` of programs.rs in a process of its own, begun by a shell; `what` says what it does.
pub fn child_of(shell: &str, what: &str, kind: Kind, servers: &Servers, name: &str) -> Child {
    let program = std::env::current_exe().unwrap();
    Command::new("sh")
        .args(["-c", &format!("{shell} exec \"$0\" \"$@\"")])
        .arg(program)
        .args(["--exact", "programs::child", "--nocapture", "--ignored"])
        .env(
            "CHILD",
            format!("{what} {kind:?} {} {name}", servers.url("a")),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a child says in lines of its own, and what is on its standard error.
pub fn said(child: Child) -> (Vec<String>, String) {
    let output = child.wait_with_output().unwrap();
    let (out, errors) = (output.stdout, output.stderr);
    let errors = String::from_utf8(errors).unwrap();
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8(out).unwrap();
    let lines = lines
        .lines()
        .filter_map(|line| line.strip_prefix("child: "));
    (lines.map(str::to_owned).collect(), errors)
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Threads,
    Tasks,
}

impl Kind {
    pub fn locks(self, servers: &Servers, at: &str) -> Locks {
        self.with(servers, at, Options::default())
    }

    pub fn with(self, servers: &Servers, at: &str, options: Options) -> Locks {
        self.at(&servers.url(at), options)
    }

    pub fn at(self, url: &str, options: Options) -> Locks {
        let client = redis::Client::open(url).unwrap();
        let inner = match self {
            Self::Threads => threads(fairlock::Locks::new(&client), &options),
            Self::Tasks => tasks(aio::Locks::new(&client), &options),
        };
        Locks { inner, options }
    }

    pub fn sentinel(self, servers: &Servers) -> Locks {
        self.sentinel_as(servers, None, Options::default())
    }

    pub fn sentinel_as(
        self,
        servers: &Servers,
        node: Option<RedisConnectionInfo>,
        options: Options,
    ) -> Locks {
        let urls = [servers.url("s")];
        let inner = match self {
            Self::Threads => threads(fairlock::Locks::sentinel(urls, "locks", node), &options),
            Self::Tasks => tasks(aio::Locks::sentinel(urls, "locks", node), &options),
        };
        Locks { inner, options }
    }

    pub fn cluster(self, servers: &Servers, at: &str, options: Options) -> Locks {
        self.cluster_at(&servers.url(at), options)
    }

    pub fn cluster_at(self, url: &str, options: Options) -> Locks {
        let inner = match self {
            Self::Threads => threads(fairlock::Locks::cluster([url]), &options),
            Self::Tasks => tasks(aio::Locks::cluster([url]), &options),
        };
        Locks { inner, options }
    }

    pub fn fake(self, options: Options) -> (Locks, Control) {
        let (inner, control) = match self {
            Self::Threads => {
                let fake = FakeLocks::new(options.clone()).unwrap();
                let control = fake.control.clone();
                (Inner::Threads(Arc::new(fake)), control)
            }
            Self::Tasks => {
                let fake = FakeAioLocks::new(options.clone());
                let control = fake.control.clone();
                (Inner::Tasks(Arc::new(fake)), control)
            }
        };
        (Locks { inner, options }, control)
    }
}

struct Plain<T>(T);

impl<T> Deref for Plain<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

fn threads(locks: Result<fairlock::Locks>, options: &Options) -> Inner {
    Inner::Threads(Arc::new(Plain(locks.unwrap().with(options.clone()))))
}

fn tasks(locks: Result<aio::Locks>, options: &Options) -> Inner {
    Inner::Tasks(Arc::new(Plain(locks.unwrap().with(options.clone()))))
}

#[derive(Clone)]
enum Inner {
    Threads(Arc<dyn Deref<Target = fairlock::Locks> + Send + Sync>),
    Tasks(Arc<dyn Deref<Target = aio::Locks> + Send + Sync>),
}

#[derive(Clone)]
pub struct Locks {
    inner: Inner,
    options: Options,
}

pub enum Held {
    Threads(fairlock::Held),
    Tasks(Arc<aio::Held>),
}

impl Locks {
    fn options(&self, change: impl FnOnce(&mut Options)) -> Options {
        let mut options = self.options.clone();
        change(&mut options);
        options
    }

    pub fn get(&self, name: &str) -> Result<Held> {
        self.acquire(name, |_| ())
    }

    pub fn acquire(&self, name: &str, change: impl FnOnce(&mut Options)) -> Result<Held> {
        let options = self.options(change);
        match &self.inner {
            Inner::Threads(locks) => locks
                .lock(name)
                .options(options)
                .acquire()
                .map(Held::Threads),
            Inner::Tasks(locks) => {
                let work = locks.lock(name).options(options).acquire();
                RUNTIME
                    .block_on(RUNTIME.spawn(work))
                    .unwrap()
                    .map(|held| Held::Tasks(Arc::new(held)))
            }
        }
    }

    pub fn try_acquire(&self, name: &str) -> Result<Option<Held>> {
        let options = self.options.clone();
        match &self.inner {
            Inner::Threads(locks) => Ok(locks
                .lock(name)
                .options(options)
                .try_acquire()?
                .map(Held::Threads)),
            Inner::Tasks(locks) => {
                let held = RUNTIME.block_on(locks.lock(name).options(options).try_acquire())?;
                Ok(held.map(|held| Held::Tasks(Arc::new(held))))
            }
        }
    }

    pub fn info(&self, name: &str) -> Result<Info> {
        match &self.inner {
            Inner::Threads(locks) => locks.info(name),
            Inner::Tasks(locks) => RUNTIME.block_on(locks.info(name)),
        }
    }

    /// Acquires in a thread, or a task, of its own.
    pub fn begin(&self, name: &str, change: impl FnOnce(&mut Options)) -> Begun {
        let (sender, result) = mpsc::channel();
        let (locks, name, options) = (self.clone(), name.to_owned(), self.options(change));
        let task = match &self.inner {
            Inner::Threads(_) => {
                std::thread::spawn(move || {
                    drop(sender.send(locks.acquire(&name, |all| *all = options)))
                });
                None
            }
            Inner::Tasks(locks) => {
                let work = locks.lock(&name).options(options).acquire();
                Some(RUNTIME.spawn(async move {
                    let held = work.await.map(|held| Held::Tasks(Arc::new(held)));
                    drop(sender.send(held));
                }))
            }
        };
        Begun {
            result,
            got: None,
            task,
        }
    }

    pub fn close(&self) {
        match &self.inner {
            Inner::Threads(locks) => locks.close(),
            Inner::Tasks(locks) => RUNTIME.block_on(locks.close()),
        }
    }

    /// Holds it twice in one thread or task: both tokens, and what the server says of the holder when one is released.
    pub fn nested(
        &self,
        name: &str,
        between: impl FnOnce() + Send + 'static,
    ) -> Result<(i64, i64)> {
        let options = self.options(|all| all.reentrant = true);
        match &self.inner {
            Inner::Threads(locks) => {
                let outer = locks.lock(name).options(options.clone()).acquire()?;
                let inner = locks.lock(name).options(options).acquire()?;
                let tokens = (outer.token(), inner.token());
                inner.release()?;
                between();
                outer.release()?;
                Ok(tokens)
            }
            Inner::Tasks(locks) => {
                let (locks, name) = (locks.clone(), name.to_owned());
                let work = async move {
                    let outer = locks.lock(&name).options(options.clone()).acquire().await?;
                    let inner = locks.lock(&name).options(options).acquire().await?;
                    let tokens = (outer.token(), inner.token());
                    inner.release().await?;
                    tokio::task::spawn_blocking(between).await.unwrap();
                    outer.release().await?;
                    Ok(tokens)
                };
                RUNTIME.block_on(RUNTIME.spawn(work)).unwrap()
            }
        }
    }
}

pub struct Begun {
    result: mpsc::Receiver<Result<Held>>,
    got: Option<Result<Held>>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Begun {
    pub fn is_done(&mut self) -> bool {
        if self.got.is_none() {
            self.got = self.result.try_recv().ok();
        }
        self.got.is_some()
    }

    pub fn result(mut self) -> Result<Held> {
        self.got.take().unwrap_or_else(|| {
            self.result
                .recv_timeout(LONGEST)
                .expect("an end of the acquisition")
        })
    }

    pub fn held(self) -> Held {
        self.result().unwrap()
    }

    /// Drops the future.
    pub fn cancel(self) {
        let task = self.task.expect("only tasks can be cancelled");
        task.abort();
        assert!(RUNTIME.block_on(task).unwrap_err().is_cancelled());
    }
}

impl Held {
    pub fn token(&self) -> i64 {
        match self {
            Self::Threads(held) => held.token(),
            Self::Tasks(held) => held.token(),
        }
    }

    pub fn owner(&self) -> String {
        match self {
            Self::Threads(held) => held.owner().to_owned(),
            Self::Tasks(held) => held.owner().to_owned(),
        }
    }

    pub fn is_lost(&self) -> bool {
        match self {
            Self::Threads(held) => held.is_lost(),
            Self::Tasks(held) => held.is_lost(),
        }
    }

    pub fn lost(&self) -> Cause {
        match self {
            Self::Threads(held) => held.wait_lost(LONGEST).expect("it is lost"),
            Self::Tasks(held) => {
                let held = held.clone();
                let lost = async move { tokio::time::timeout(LONGEST, held.lost()).await };
                let lost = RUNTIME.block_on(lost).expect("it is lost");
                lost.cause().expect("how it was lost")
            }
        }
    }

    pub fn renew(&self) -> Result<Duration> {
        match self {
            Self::Threads(held) => held.renew(),
            Self::Tasks(held) => RUNTIME.block_on(held.renew()),
        }
    }

    pub fn renew_for(&self, lease: Duration) -> Result<Duration> {
        match self {
            Self::Threads(held) => held.renew_for(lease),
            Self::Tasks(held) => RUNTIME.block_on(held.renew_for(lease)),
        }
    }

    pub fn release(&self) -> Result<()> {
        match self {
            Self::Threads(held) => held.release(),
            Self::Tasks(held) => {
                let held = held.clone();
                RUNTIME.block_on(async move { held.release().await })
            }
        }
    }
}

static NUMBERS: AtomicUsize = AtomicUsize::new(0);

/// A lock that no other test has.
pub fn name() -> String {
    format!(
        "lock:{}:{}",
        std::process::id(),
        NUMBERS.fetch_add(1, Ordering::Relaxed)
    )
}
