//! The program, run by a test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use fairlock_testing::{Server, send_signal, wait_until};
use tempfile::TempDir;

/// Where the program is.
pub const PATH: &str = env!("CARGO_BIN_EXE_fairlock");

/// The program under way; killed when dropped. What it prints goes into files.
pub struct Program {
    child: Child,
    dir: TempDir,
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
    /// That it has ended so, and said this as an error.
    #[track_caller]
    pub fn failed(&self, code: i32, text: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.errors.contains(text), "{text}: {self:?}");
    }

    /// What it printed, without an error.
    #[track_caller]
    pub fn said(self) -> String {
        assert_eq!((self.code, self.errors.as_str()), (0, ""), "{self:?}");
        self.out
    }
}

impl Program {
    /// Starts a command that runs under the lock `k`, with these options of `exec`, until it gets a signal; waits until
    /// it runs.
    #[track_caller]
    pub fn holding(port: u16, options: &[&str]) -> Self {
        let program = Self::script(port, options, "echo ready; exec sleep 100");
        program.wait_for("ready\n");
        program
    }

    /// Starts a command for the lock `k`, with these options of `exec`, which ends with 3; waits until it waits for the lock.
    #[track_caller]
    pub fn waiting(server: &Server, options: &[&str]) -> Self {
        let program = Self::script(server.port, options, "exit 3");
        wait_until("it waits", || server.blocked() == 1);
        program
    }

    /// Starts a shell's script that runs under the lock `k`, with these options of `exec`.
    pub fn script(port: u16, options: &[&str], script: &str) -> Self {
        let command = ["--", "sh", "-c", script];
        Self::start(port, &[&["exec", "k"], options, &command].concat())
    }

    /// Starts it for a server. It has no terminal, as from cron, wherever the tests run.
    pub fn start<S: AsRef<OsStr>>(port: u16, args: &[S]) -> Self {
        let mut command = with_all_signals("setsid");
        command.arg(PATH).args(args);
        Self::run(command, port)
    }

    /// Starts a shell's script in which `$FAIRLOCK` is the program.
    pub fn in_shell(port: u16, script: &str) -> Self {
        let mut command = with_all_signals("setsid");
        command.args(["sh", "-c", script]);
        Self::run(command, port)
    }

    /// As [`Program::in_shell`], with a terminal.
    pub fn in_terminal(port: u16, script: &str) -> Self {
        let mut command = with_all_signals("script");
        command.args(["-qfec", script, "/dev/null"]);
        command.env("TERM", "xterm-256color");
        Self::run(command, port)
    }

    fn run(mut command: Command, port: u16) -> Self {
        let dir = TempDir::new().expect("a directory");
        let file = |name| File::create(dir.path().join(name)).expect("a file");
        let child = command
            .env("FAIRLOCK", PATH)
            .env("FAIRLOCK_URL", format!("redis://127.0.0.1:{port}"))
            .stdin(Stdio::piped())
            .stdout(file("out"))
            .stderr(file("errors"))
            .spawn()
            .expect("a process");
        Self { child, dir }
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn ended<S: AsRef<OsStr>>(port: u16, args: &[S]) -> Ended {
        Self::start(port, args).end()
    }

    /// Runs it to its end as that user.
    #[track_caller]
    pub fn ended_as(user: &str, server: &Server, args: &[&str]) -> Ended {
        let url = format!("redis://{user}@127.0.0.1:{}", server.port);
        Self::ended(1, &[&["--url", &url], args].concat())
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        wait_until("the program has ended", || self.has_ended());
        let status = self.child.wait().expect("its status");
        Ended {
            code: status.code().unwrap_or(-1),
            out: self.out(),
            errors: self.errors(),
        }
    }

    /// Ends it by SIGTERM; the exit code.
    #[track_caller]
    pub fn terminate(self) -> i32 {
        self.signal("TERM");
        self.end().code
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_some()
    }

    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.dir.path().join(name)).expect("what it printed");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What it has printed so far.
    pub fn out(&self) -> String {
        self.read("out")
    }

    /// What it has printed as errors so far.
    pub fn errors(&self) -> String {
        self.read("errors")
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

    /// The process numbers that its command has printed, each on a line.
    #[track_caller]
    pub fn pids<const N: usize>(&self) -> [u32; N] {
        let mut pids = Vec::new();
        wait_until("the command has printed its process number", || {
            let out = self.out();
            let lines = out
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            pids = lines.filter_map(|line| line.trim().parse().ok()).collect();
            pids.len() == N
        });
        pids.try_into().expect("as many")
    }

    /// Types.
    pub fn type_in(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("its input");
        input.write_all(text.as_bytes()).expect("typed");
    }

    /// Sends it a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        send_signal(self.child.id(), name);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("printed:\n{}\nerrors:\n{}", self.out(), self.errors());
        }
    }
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

/// Kills the connection that CLIENT LIST shows with a mark; its id.
#[track_caller]
pub fn kill_connection(server: &Server, mark: &str) -> i64 {
    let id = connection(server, mark);
    assert_eq!(server.connect().run(&format!("CLIENT KILL ID {id}")), "1");
    id
}

/// The id of the connection that CLIENT LIST shows with a mark: what it did last, or that it waits.
#[track_caller]
pub fn connection(server: &Server, mark: &str) -> i64 {
    let mut client = server.connect();
    let mut id = None;
    wait_until("the program's connection is there", || {
        let list = client.text("CLIENT LIST");
        // The client shows what it gets with its ends of lines escaped.
        let line = list.split("\\n").find(|line| line.contains(mark));
        let found = line.and_then(|line| line.split(' ').find_map(|word| word.strip_prefix("id=")));
        id = found.and_then(|id| id.parse().ok());
        id.is_some()
    });
    id.expect("an id")
}
