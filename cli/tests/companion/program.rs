//! The program, run by a test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use fairlock_testing::{Server, send_signal, wait_until};
use tempfile::TempDir;

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
        Self::run(port, &["setsid", env!("CARGO_BIN_EXE_fairlock")], args)
    }

    /// Starts a shell's script in which `$FAIRLOCK` is the program.
    pub fn in_shell(port: u16, script: &str) -> Self {
        Self::run(port, &["setsid", "sh", "-c"], &[script])
    }

    /// As [`Program::in_shell`], with a terminal.
    pub fn in_terminal(port: u16, script: &str) -> Self {
        Self::run(port, &["script", "-qfec"], &[script, "/dev/null"])
    }

    /// It ignores no signal, even if the tests run under nohup.
    fn run<S: AsRef<OsStr>>(port: u16, program: &[&str], args: &[S]) -> Self {
        let dir = TempDir::new().expect("a directory");
        let file = |name| File::create(dir.path().join(name)).expect("a file");
        let child = Command::new("env")
            .arg("--default-signal")
            .args(program)
            .args(args)
            .env("FAIRLOCK", env!("CARGO_BIN_EXE_fairlock"))
            .env("FAIRLOCK_URL", format!("redis://127.0.0.1:{port}"))
            .env("TERM", "xterm-256color")
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
            out: self.printed("out"),
            errors: self.printed("errors"),
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

    /// What it has printed so far, as `out` or as `errors`.
    pub fn printed(&self, to: &str) -> String {
        let bytes = fs::read(self.dir.path().join(to)).expect("what it printed");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until it has printed a text.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        wait_until(text, || self.printed("out").contains(text));
    }

    /// Waits until it has printed a text as an error.
    #[track_caller]
    pub fn wait_for_error(&self, text: &str) {
        wait_until(text, || self.printed("errors").contains(text));
    }

    /// The process numbers that its command prints first, each on a line.
    #[track_caller]
    pub fn pids<const N: usize>(&self) -> [u32; N] {
        let lines = || self.printed("out").matches('\n').count();
        wait_until("it has printed them", || lines() >= N);
        let out = self.printed("out");
        let pids = out.lines().map_while(|line| line.trim().parse().ok());
        pids.collect::<Vec<u32>>().try_into().expect("numbers")
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
            let [out, errors] = ["out", "errors"].map(|to| self.printed(to));
            eprintln!("printed:\n{out}\nerrors:\n{errors}");
        }
    }
}

/// Whether a process is there and has not ended.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
