//! The program, run by a test.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use fairlock_testing::{Client, Server, wait_until};

/// Where the program is.
pub const PATH: &str = env!("CARGO_BIN_EXE_fairlock");

/// What a stream has said so far.
type Said = Arc<Mutex<String>>;

/// The program under way; killed when dropped.
pub struct Program {
    child: Child,
    out: Said,
    errors: Said,
    readers: Vec<thread::JoinHandle<()>>,
}

/// The result of a program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; -1 if a signal ended it.
    pub code: i32,
    pub out: String,
    pub errors: String,
}

impl Ended {
    /// That it has ended so, and said this.
    #[track_caller]
    pub fn failed(&self, code: i32, text: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.errors.contains(text), "{text}: {self:?}");
    }
}

impl Program {
    /// Starts a command that runs under the lock `k`, with these options of `exec`, until it gets a signal; waits until
    /// it runs.
    #[track_caller]
    pub fn holding(port: u16, options: &[&str]) -> Self {
        let command = ["--", "sh", "-c", "echo ready; exec sleep 100"];
        let program = Self::start(port, &[&["exec", "k"], options, &command].concat());
        program.wait_for("ready\n");
        program
    }

    /// Starts it for a server. It has no terminal, as from cron, wherever the tests run.
    pub fn start<S: AsRef<OsStr>>(port: u16, args: &[S]) -> Self {
        let mut command = with_all_signals("setsid");
        command.arg(PATH).args(args);
        Self::run(command, port)
    }

    /// Starts another program, which becomes it.
    pub fn start_by(by: &[&str], port: u16) -> Self {
        let mut command = with_all_signals("setsid");
        command.args(by);
        Self::run(command, port)
    }

    /// Starts it with a terminal, in which `line` is typed as a command.
    pub fn in_terminal(port: u16, line: &str) -> Self {
        let mut command = with_all_signals("script");
        command
            .args(["-qfec", line, "/dev/null"])
            .env("TERM", "xterm-256color");
        Self::run(command, port)
    }

    fn run(mut command: Command, port: u16) -> Self {
        let mut child = command
            .env("FAIRLOCK", PATH)
            .env("FAIRLOCK_URL", format!("redis://127.0.0.1:{port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let (out, errors) = (Said::default(), Said::default());
        let readers = vec![
            read(child.stdout.take().expect("its output"), &out),
            read(child.stderr.take().expect("its errors"), &errors),
        ];
        Self {
            child,
            out,
            errors,
            readers,
        }
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn ended<S: AsRef<OsStr>>(port: u16, args: &[S]) -> Ended {
        Self::start(port, args).end()
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let status = self.wait();
        for reader in std::mem::take(&mut self.readers) {
            reader.join().expect("read to the end");
        }
        Ended {
            code: status.code().unwrap_or(-1),
            out: self.out(),
            errors: self.errors(),
        }
    }

    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the program has ended", || {
            status = self.child.try_wait().expect("its state");
            status.is_some()
        });
        status.expect("its status")
    }

    /// Waits until its own process has ended. What it started may have its streams.
    #[track_caller]
    pub fn code(mut self) -> i32 {
        self.wait().code().unwrap_or(-1)
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_some()
    }

    /// What it has printed so far.
    pub fn out(&self) -> String {
        self.out.lock().expect("no panic").clone()
    }

    /// What it has printed as errors so far.
    pub fn errors(&self) -> String {
        self.errors.lock().expect("no panic").clone()
    }

    /// Waits until it has printed a text.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        wait_until(text, || self.out().contains(text));
    }

    /// Waits until it has printed a text as an error.
    #[track_caller]
    pub fn wait_for_error(&self, text: &str) {
        wait_until(text, || self.errors().contains(text));
    }

    /// Types.
    pub fn type_in(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("its input");
        input.write_all(text.as_bytes()).expect("typed");
        input.flush().expect("typed");
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        send_signal(self.pid(), name);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("printed:\n{}\nerrors:\n{}", self.out(), self.errors());
        }
    }
}

fn read(stream: impl Read + Send + 'static, said: &Said) -> thread::JoinHandle<()> {
    let said = Arc::clone(said);
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut bytes = Vec::new();
        // Until it closes: what is read of a line is shown at once, for screens have none.
        while let Ok(read) = stream.fill_buf() {
            if read.is_empty() {
                return;
            }
            let length = read.len();
            bytes.extend_from_slice(read);
            stream.consume(length);
            *said.lock().expect("no panic") = String::from_utf8_lossy(&bytes).into_owned();
        }
    })
}

/// Sends a process a signal.
pub fn send_signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status();
    assert!(status.expect("kill is there").success());
}

/// A program that ignores no signal, even if the tests run under nohup.
fn with_all_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

/// Whether a process is there and has not ended.
pub fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name is in brackets and can have anything in it.
    let state = status
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// The process number that a command has written into a file.
#[track_caller]
pub fn pid_in(file: &Path) -> u32 {
    let mut pid = None;
    wait_until("the command has written its process number", || {
        let text = fs::read_to_string(file).unwrap_or_default();
        pid = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        pid.is_some()
    });
    pid.expect("a number")
}

/// The id of the connection that CLIENT LIST shows with a mark: what it did last, or that it waits.
#[track_caller]
pub fn connection(server: &Server, mark: &str) -> i64 {
    let mut client = server.connect();
    let mut id = None;
    wait_until("the program's connection is there", || {
        let list = client.text("CLIENT LIST");
        // The client shows what it gets with its ends of lines escaped.
        let mut lines = list.split("\\n");
        let line = lines.find(|line| line.contains(mark));
        let found = line.and_then(|line| line.split(' ').find_map(|word| word.strip_prefix("id=")));
        id = found.and_then(|id| id.parse().ok());
        id.is_some()
    });
    id.expect("an id")
}

/// Kills a connection.
pub fn kill_connection(client: &mut Client, id: i64) {
    assert_eq!(client.run(&format!("CLIENT KILL ID {id}")), "1");
}
