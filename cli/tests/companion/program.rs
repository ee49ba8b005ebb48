//! Ways to run the program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::process::Command;

use fairlock_testing::{Ended, Program, Server, wait_until};

/// Starts a command under the lock `k`, with these options of `exec`, that runs until a signal; waits until it runs.
#[track_caller]
pub fn holding(port: u16, options: &str) -> Program {
    let program = script(port, options, "echo ready; exec sleep 100");
    program.wait_for("ready\n");
    program
}

/// Starts a command for the lock `k`, with these options of `exec`, which ends with 3; waits until it waits for the lock.
#[track_caller]
pub fn waiting(server: &Server, options: &str) -> Program {
    let program = script(server.port, options, "exit 3");
    wait_until("it waits", || server.blocked() == 1);
    program
}

/// Starts a shell's script that runs under the lock `k`, with these options of `exec`.
pub fn script(port: u16, options: &str, script: &str) -> Program {
    let script = shlex::try_quote(script).expect("a script");
    start(port, format!("exec k {options} -- sh -c {script}"))
}

/// Starts it for a server, its arguments as one would type them. It never has a terminal, as from cron.
pub fn start(port: u16, arguments: impl AsRef<[u8]>) -> Program {
    let words = shlex::bytes::split(arguments.as_ref()).expect("words");
    let program = ["setsid", env!("CARGO_BIN_EXE_fairlock")].map(OsString::from);
    let words = words.into_iter().map(OsString::from_vec);
    run(port, program.into_iter().chain(words))
}

/// As [`start`], as a user that the URL names.
pub fn start_as(user: &str, port: u16, arguments: &str) -> Program {
    let url = format!("redis://{user}@127.0.0.1:{port}");
    start(1, format!("--url {url} {arguments}"))
}

/// Starts a shell's script in which `$FAIRLOCK` is the program.
pub fn in_shell(port: u16, script: &str) -> Program {
    run(port, ["setsid", "sh", "-c", script])
}

/// As [`in_shell`], with a terminal.
pub fn in_terminal(port: u16, script: &str) -> Program {
    run(port, ["script", "-qfec", script, "/dev/null"])
}

/// It ignores no signal, even if the tests run under nohup.
fn run(port: u16, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Program {
    let mut command = Command::new("env");
    command
        .arg("--default-signal")
        .args(words)
        .env("FAIRLOCK", env!("CARGO_BIN_EXE_fairlock"))
        .env("FAIRLOCK_URL", format!("redis://127.0.0.1:{port}"))
        .env("TERM", "xterm-256color");
    Program::start(&mut command)
}

/// Runs it to its end.
#[track_caller]
pub fn ended(port: u16, arguments: impl AsRef<[u8]>) -> Ended {
    start(port, arguments).end()
}
