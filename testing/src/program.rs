//! A program that a test runs: what it prints and gets, and how it ends.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::server::send_signal;
use crate::wait::wait_until;

/// A program under way; killed when dropped. What it prints goes into files.
pub struct Program {
    child: Child,
    dir: TempDir,
}

/// The result of a program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; -1 if a signal ended it.
    pub code: i32,
    /// What it has printed.
    pub out: String,
    /// What it has printed as errors.
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
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        let dir = TempDir::new().expect("a directory");
        let file = |name| File::create(dir.path().join(name)).expect("a file");
        command.stdin(Stdio::piped());
        command.stdout(file("out")).stderr(file("errors"));
        let child = command.spawn().expect("a process");
        Self { child, dir }
    }

    /// The process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
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
