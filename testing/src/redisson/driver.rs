//! A real Redisson client: a JVM that carries out commands line by line (see `Driver.java`).

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::redisson::releases;
use crate::server::Server;
use crate::wait::give_up;

/// Packages of the JDK that old releases reach into.
const OPENED: [&str; 8] = [
    "lang",
    "util",
    "math",
    "net",
    "text",
    "util.concurrent",
    "io",
    "nio",
];
/// A client is short-lived, and one of several on a small machine.
const FRUGAL: [&str; 5] = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Xmx128m",
];

/// The receivers of answers, by request; `None` once the client has ended.
type Pending = Arc<Mutex<Option<HashMap<u64, Sender<String>>>>>;

/// A client; killed when dropped, without closing anything.
pub struct Driver {
    process: Mutex<Child>,
    input: Mutex<ChildStdin>,
    pending: Pending,
    next: AtomicU64,
    /// The JVM's log.
    errors: File,
}

/// The answer to an operation, when it comes.
pub struct Answer {
    operation: String,
    receiver: Receiver<String>,
}

impl Driver {
    /// Clients of one server, one for each release, with settings of `Config` such as `fairLockWaitTimeout=2000`. A
    /// release ignores those that it does not have.
    pub fn several<const N: usize>(
        releases: [&str; N],
        server: &Server,
        settings: &[&str],
    ) -> [Self; N] {
        Self::of("single", &[server.port], releases, settings)
    }

    /// Clients of `single`, `replicated` or `cluster` servers on these ports of 127.0.0.1. They start at the same time.
    #[track_caller]
    pub fn of<const N: usize>(
        mode: &str,
        ports: &[u16],
        releases: [&str; N],
        settings: &[&str],
    ) -> [Self; N] {
        let addresses: Vec<String> = ports.iter().copied().map(address).collect();
        let addresses = addresses.join(",");
        let arguments = [&["Driver", mode, &addresses], settings].concat();
        let starting = releases.map(|release| Self::start(release, &arguments));
        starting.map(|(driver, ready)| {
            let ready = ready.recv_timeout(give_up());
            assert!(ready.is_ok(), "the client does not start");
            driver
        })
    }

    /// Starts a client, which then says when it is connected.
    fn start(release: &str, arguments: &[&str]) -> (Self, Receiver<()>) {
        let mut command = Command::new("java");
        command.args(FRUGAL);
        for package in OPENED {
            command.arg(format!("--add-opens=java.base/java.{package}=ALL-UNNAMED"));
        }
        let folder = releases::folder(release);
        let archive = folder.join("driver.jsa");
        let errors = tempfile::tempfile().expect("a file");
        let mut process = command
            .arg(format!("-XX:SharedArchiveFile={}", archive.display()))
            .arg("-cp")
            .arg(folder.join("*"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone().expect("the file"))
            .spawn()
            .expect("java is installed");
        let input = process.stdin.take().expect("a pipe");
        let output = process.stdout.take().expect("a pipe");
        let (sender, ready) = mpsc::channel();
        let pending = Pending::new(Mutex::new(Some(HashMap::new())));
        let answers = Arc::clone(&pending);
        thread::spawn(move || take_answers(output, &sender, &answers));
        let driver = Self {
            process: Mutex::new(process),
            input: Mutex::new(input),
            pending,
            next: AtomicU64::new(0),
            errors,
        };
        (driver, ready)
    }

    /// Lets a thread of the client do something: `lock k`, `tryLock k 200 1000`, `unlock k`, ...
    pub fn send(&self, thread: &str, operation: &str) -> Answer {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel();
        let mut pending = self.pending.lock().expect("no panic elsewhere");
        if let Some(pending) = pending.as_mut() {
            pending.insert(id, sender);
        }
        drop(pending);
        let (operation_name, rest) = operation.split_once(' ').unwrap_or((operation, ""));
        let line = format!("{id} {thread} {operation_name} {rest}");
        let mut input = self.input.lock().expect("no panic elsewhere");
        // A killed client takes nothing, and a waiting caller learns that it has ended.
        let _ = writeln!(input, "{}", line.trim_end());
        Answer {
            operation: format!("{thread}: {operation}"),
            receiver,
        }
    }

    /// Lets a thread of the client do something, and waits until it is done.
    #[track_caller]
    pub fn run(&self, thread: &str, operation: &str) -> String {
        self.send(thread, operation).get()
    }

    /// Kills the JVM: connections break, and its threads no longer renew, unlock or leave a queue.
    pub fn kill(&self) {
        let mut process = self.process.lock().expect("no panic elsewhere");
        // It may have ended by itself.
        let _ = process.kill();
        let _ = process.wait();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let said = self.errors.rewind();
            let said = said.and_then(|()| std::io::read_to_string(&self.errors));
            println!("a client said:\n{}", said.unwrap_or_default());
        }
    }
}

impl Answer {
    /// The answer: `true`, `false`, `done`, `failed ...`, or `gone` when the client was killed.
    #[track_caller]
    pub fn get(self) -> String {
        match self.receiver.recv_timeout(give_up()) {
            Ok(answer) => answer,
            Err(mpsc::RecvTimeoutError::Disconnected) => "gone".to_owned(),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no answer to {}", self.operation),
        }
    }

    /// The answer, if it has come; it is taken.
    pub fn poll(&self) -> Option<String> {
        match self.receiver.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Disconnected) => Some("gone".to_owned()),
            Err(TryRecvError::Empty) => None,
        }
    }
}

/// Hands the answers out until the client ends; then callers that still wait learn of it.
fn take_answers(output: impl Read, ready: &Sender<()>, pending: &Pending) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line == "ready" {
            // The test may have failed by now.
            let _ = ready.send(());
            continue;
        }
        let Some((id, answer)) = line.split_once(' ') else {
            continue;
        };
        let Ok(id) = id.parse() else { continue };
        let mut pending = pending.lock().expect("no panic elsewhere");
        let waiting = pending.as_mut().and_then(|pending| pending.remove(&id));
        if let Some(waiting) = waiting {
            // The test may not wait for this answer.
            let _ = waiting.send(answer.to_owned());
        }
    }
    *pending.lock().expect("no panic elsewhere") = None;
}

fn address(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}
