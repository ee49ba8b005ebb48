//! Servers by clients/testing/servers, plain clients that look at them, and one interface to the package's two kinds of
//! locks.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::time::{Duration, Instant};

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

/// Whether the servers of the tests do not have the module.
pub fn by_scripts() -> bool {
    std::env::var_os("FAIRLOCK_SCRIPTS").is_some_and(|value| !value.is_empty())
}

const SCRIPTS: [(&str, &str); 4] = [
    ("FAIRLOCK.ACQUIRE", include_str!("../lua/acquire.lua")),
    ("FAIRLOCK.RELEASE", include_str!("../lua/release.lua")),
    ("FAIRLOCK.RENEW", include_str!("../lua/renew.lua")),
    ("FAIRLOCK.CANCEL", include_str!("../lua/cancel.lua")),
];

fn script(command: &str) -> &'static str {
    let script = SCRIPTS.iter().find(|(each, _)| *each == command);
    script.unwrap().1
}

/// The part of a request that identifies a command of the module.
pub fn request(command: &str) -> String {
    if by_scripts() {
        redis::Script::new(script(command)).get_hash().to_owned()
    } else {
        command.to_owned()
    }
}

/// The equivalent of a command of the module without it.
fn without_module(words: Vec<Vec<u8>>) -> redis::Cmd {
    let texts: Vec<_> = words
        .iter()
        .map(|word| String::from_utf8_lossy(word))
        .collect();
    let key = |prefix: &str| format!("{prefix}:{{{}}}", texts[1]);
    let mut command = redis::Cmd::new();
    match &*texts[0] {
        "FAIRLOCK.BREAK" => {
            command.arg("DEL").arg(&words[1]);
        }
        "FAIRLOCK.QUEUE" => {
            command
                .arg("LRANGE")
                .arg(key("redisson_lock_queue"))
                .arg(0)
                .arg(-1);
        }
        name => {
            let keys = [
                "redisson_lock_queue",
                "redisson_lock_timeout",
                "fairlock_token",
            ]
            .map(key);
            command
                .arg("EVAL")
                .arg(script(name))
                .arg(4)
                .arg(&words[1])
                .arg(&keys);
            command.arg(&words[2..]);
            if name == "FAIRLOCK.ACQUIRE" {
                command.arg("NOWAIT");
            }
        }
    }
    command
}

/// A server's locks.
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
        let words: Vec<Vec<u8>> = words.iter().flat_map(|word| word.text()).collect();
        let command = if by_scripts() && words[0].starts_with(b"FAIRLOCK.") {
            without_module(words)
        } else {
            redis::Cmd::new().arg(words).clone()
        };
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
        if by_scripts() {
            return self.info_by_keys(name);
        }
        self.run(&[&"FAIRLOCK.INFO", &name])
    }

    fn info_by_keys(&self, name: &str) -> HashMap<String, Value> {
        let mut fields: HashMap<String, i64> = self.run(&[&"HGETALL", &name]);
        let token = fields.remove("").map_or(Value::Nil, Value::Int);
        let holder = fields.into_iter().next();
        let holds = holder.as_ref().map_or(0, |(_, holds)| *holds);
        let owner = holder.map_or(Value::Nil, |(owner, _)| {
            Value::BulkString(owner.into_bytes())
        });
        let lease = self.run(&[&"PTTL", &name]);
        let all = [
            ("owner", owner),
            ("token", token),
            ("holds", Value::Int(holds)),
            ("lease", Value::Int(lease)),
        ];
        all.map(|(name, value)| (name.to_owned(), value)).into()
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

    /// Of the queue, as it is in its key.
    pub fn length(&self, name: &str) -> usize {
        self.run(&[&"LLEN", &format!("redisson_lock_queue:{{{name}}}")])
    }

    pub fn queue(&self, name: &str) -> Vec<String> {
        if by_scripts() {
            return self.run(&[&"FAIRLOCK.QUEUE", &name]);
        }
        let queue: Vec<Vec<Value>> = self.run(&[&"FAIRLOCK.QUEUE", &name]);
        queue
            .iter()
            .map(|waiter| redis::from_redis_value_ref(&waiter[0]).unwrap())
            .collect()
    }

    /// Whether this many wait, each on a connection of its own; without the module, each in the queue.
    pub fn are_blocked(&self, name: &str, count: usize) -> bool {
        if by_scripts() {
            let queue: redis::RedisResult<Vec<String>> = self.try_run(&[&"FAIRLOCK.QUEUE", &name]);
            return queue.is_ok_and(|queue| queue.len() == count);
        }
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
        // Without the module: a command that its script calls, or that calls it.
        let counted = match command {
            _ if !by_scripts() => &format!("fairlock.{command}"),
            "renew" => "pexpire",
            "release" => "del",
            "acquire" => "evalsha",
            _ => "eval",
        };
        let prefix = format!("cmdstat_{counted}:calls=");
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

/// Runs `child` of programs.rs in a process of its own, started by a shell; `what` is its task.
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

/// A child's output lines, and its standard error.
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
}

fn threads(locks: Result<fairlock::Locks>, options: &Options) -> Inner {
    Inner::Threads(Arc::new(locks.unwrap().with(options.clone())))
}

fn tasks(locks: Result<aio::Locks>, options: &Options) -> Inner {
    Inner::Tasks(Arc::new(locks.unwrap().with(options.clone())))
}

#[derive(Clone)]
enum Inner {
    Threads(Arc<fairlock::Locks>),
    Tasks(Arc<aio::Locks>),
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

    pub fn native(&self) -> Option<bool> {
        match &self.inner {
            Inner::Threads(locks) => locks.native(),
            Inner::Tasks(locks) => locks.native(),
        }
    }

    pub fn close(&self) {
        match &self.inner {
            Inner::Threads(locks) => locks.close(),
            Inner::Tasks(locks) => RUNTIME.block_on(locks.close()),
        }
    }

    /// Holds it twice in one thread or task: returns both tokens, and the server's INFO when one is released.
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

/// The line of SECURITY.md that makes this user.
pub fn rule(user: &str) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut lines = page.lines().map(str::trim);
    let begin = format!("ACL SETUSER {user} on ");
    let rule = lines.find(|line| line.starts_with(&begin));
    let words = rule.unwrap().split(' ').map(str::to_owned);
    words.collect()
}
