//! The programs that use the client packages: each does here what its first lines say that it does.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use fairlock_testing::{Server, wait_until};

use super::{root, target};

/// A program under way; killed when dropped.
struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
}

/// Starts a program with what it needs fetched, at a server, with more arguments.
fn start(language: &str, program: &str, server: &Server, more: &[&str]) -> Program {
    // The script becomes the program, so that its process is the program's.
    let mut child = Command::new(root().join("scripts/clients").join(language))
        .arg("run")
        .arg(root().join("examples").join(program))
        .arg(format!("redis://127.0.0.1:{}", server.port))
        .args(more)
        .env("CARGO_TARGET_DIR", target())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let said = BufReader::new(child.stdout.take().expect("piped"));
    Program { child, said }
}

impl Program {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("read");
        line.trim_end().to_owned()
    }

    /// What else it says until it ends, as it should.
    fn rest(mut self) -> String {
        let mut said = String::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            said.push_str(&line);
            said.push('\n');
        }
        assert!(self.child.wait().expect("ended").success(), "{said}");
        said
    }

    fn ask_to_end(&self) {
        let id = self.child.id().to_string();
        let kill = Command::new("kill").arg(id).status();
        assert!(kill.expect("kill").success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A field of FAIRLOCK.INFO.
fn field(server: &Server, lock: &str, field: &str) -> String {
    let said = server.connect().run(&format!("FAIRLOCK.INFO {lock}"));
    let words: Vec<&str> = said.trim_matches(['[', ']']).split(", ").collect();
    let found = words.chunks(2).find(|pair| pair[0] == field);
    found.map(|pair| pair[1].to_owned()).unwrap_or_default()
}

#[test]
fn workers_take_turns_at_the_orders_of_a_customer() {
    let server = Server::start();
    let mut client = server.connect();
    let workers = [0; 3].map(|_| start("python", "python/worker.py", &server, &[]));
    // One that has not begun does not know yet how to end.
    wait_until("all wait for orders", || {
        server.info("clients", "blocked_clients") == "3"
    });
    for order in 0..10 {
        client.run(&format!("RPUSH orders ann:{order} bob:{order}"));
    }
    let mut bills = || ["ann", "bob"].map(|who| client.run(&format!("HGET bills {who}")));
    // Lost updates would show as smaller numbers.
    wait_until("all orders are billed", || bills() == ["10", "10"]);
    for worker in &workers {
        worker.ask_to_end();
    }
    let said = workers.map(Program::rest).concat();
    assert_eq!(said.lines().count(), 20, "{said}");
    assert_eq!(server.connect().run("FAIRLOCK.LOCKS"), "[]");
    assert_eq!(server.connect().int("LLEN orders:under-way"), 0);
}

#[test]
fn a_cron_job_that_four_machines_start_runs_once() {
    let server = Server::start();
    let job = [
        "report",
        "sh",
        "-c",
        "echo ran with $FAIRLOCK_TOKEN; sleep 0.2",
    ];
    let machines = [0; 4].map(|_| start("python", "python/cron_once.py", &server, &job));
    let said = machines.map(Program::rest).concat();
    let of = |part: &str| said.lines().filter(|line| line.contains(part)).count();
    assert_eq!(of("ran with "), 1, "{said}");
    assert_eq!(of("done, status 0"), 1, "{said}");
    assert_eq!(of("another machine has it"), 3, "{said}");
    // A machine that is late finds it taken.
    let late = start("python", "python/cron_once.py", &server, &job).rest();
    assert_eq!(late, "report: another machine has it\n");
}

#[test]
fn a_store_refuses_the_token_of_a_holder_that_slept() {
    let server = Server::start();
    let said = start("python", "python/token_store.py", &server, &[]).rest();
    let shown = [
        "the next holder has written 7",
        "the store refuses the sleeper's 9: STALE token",
        "the lock was lost (lease)",
        "apples: 7",
    ];
    for sentence in shown {
        assert!(said.contains(sentence), "not shown: {sentence}\n{said}");
    }
    assert_eq!(server.connect().run("HGET stock:apples amount"), "7");
}

#[test]
fn a_leader_that_dies_is_followed_at_once_and_one_that_resigns_too() {
    elections("typescript", "node/leader.mjs");
}

#[test]
fn a_leader_in_go_is_followed_in_the_same_way() {
    elections("go", "go/leader.go");
}

fn elections(language: &str, program: &str) {
    let server = Server::start();
    let elect = |name: &str| start(language, program, &server, &[name]);
    let mut first = elect("first");
    assert!(first.line().starts_with("first leads, token "));
    let (mut second, mut third) = (elect("second"), elect("third"));
    wait_until("two wait", || field(&server, "leader", "waiting") == "2");
    drop(first); // Killed: it says nothing, and releases nothing.
    wait_until("another leads", || {
        field(&server, "leader", "waiting") == "1"
    });
    // Which of the two was first is the server's to say.
    let next = field(&server, "leader", "owner");
    let is_second = next.contains(&format!(":{}:", second.child.id()));
    let (leader, waiter) = if is_second {
        (&mut second, &mut third)
    } else {
        (&mut third, &mut second)
    };
    assert!(leader.line().contains("leads, token "));
    leader.ask_to_end();
    assert!(leader.line().contains("has resigned"));
    assert!(waiter.line().contains("leads, token "));
}

#[test]
fn at_most_three_jobs_work_at_a_time() {
    let server = Server::start();
    let said = start("typescript", "node/at-most.mjs", &server, &["3", "12"]).rest();
    assert_eq!(said, "12 jobs, at most 3 at a time\n");
}
