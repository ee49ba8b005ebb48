//! `fairlock top` as lines.

use fairlock_testing::{Client, Server, wait_until};

use crate::program::Program;

/// `stock` has two waiters, `mail` one, `bound` a session; `alone` has neither, and `data` is no lock.
fn scene(server: &Server) -> Client {
    let mut client = server.connect();
    for (lock, owner) in [("stock", "ann"), ("mail", "bob"), ("alone", "dora")] {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} {owner} LEASE 600000"));
    }
    for command in ["stock one", "stock two", "mail one"] {
        client.run(&format!("FAIRLOCK.ACQUIRE {command} ENQUEUE"));
    }
    client.int("FAIRLOCK.ACQUIRE bound carl SHARED 3 SESSION LEASE 600000");
    client.run("HSET data field 1");
    client
}

fn once(server: &Server, args: &[&str]) -> String {
    let args = [&["top", "--once", "--interval", "10ms"], args].concat();
    Program::ended(server.port, &args).said()
}

fn names(out: &str) -> Vec<&str> {
    let lines = out.lines().skip(1);
    lines.filter_map(|line| line.split(' ').next()).collect()
}

#[test]
fn a_lock_is_a_line_sorted_and_filtered() {
    let server = Server::start();
    let mut client = scene(&server);
    let out = once(&server, &[]);
    let lines: Vec<&str> = out.lines().collect();
    let rates = "hand-offs=0.0/s acquisitions=0.0/s ";
    assert!(lines[0].starts_with(rates), "{out}");
    assert!(lines[0].ends_with(" blocked=0 sessions=1 locks=3"), "{out}");
    assert!(lines[1].starts_with("stock holder=ann held="), "{out}");
    assert!(lines[1].contains(" waiting=2 next=one token="), "{out}");
    let bound = "bound holder=carl holders=1 limit=3 held=";
    assert!(lines[4].starts_with(bound), "{out}");
    assert!(lines[4].contains(" waiting=0 next=- "), "{out}");
    assert!(lines[4].contains(" session=yes "), "{out}");
    assert_eq!(names(&out), ["stock", "mail", "alone", "bound"]);
    let by_name = ["--sort", "name", "--filter", "ONE"];
    assert_eq!(names(&once(&server, &by_name)), ["alone", "mail", "stock"]);
    let name = b"a\n\x1b[2J\xff b";
    let reply = client.raw(&[b"FAIRLOCK.ACQUIRE", name, b"x", b"SESSION"]);
    reply.expect("acquired");
    let out = once(&server, &["--filter", "2J"]);
    assert!(
        out.contains("\n\"a\\n\\u{1b}[2J\\xff b\" holder=x"),
        "{out}"
    );
}

#[test]
fn what_is_left_out_is_told() {
    let server = Server::start();
    let mut client = scene(&server);
    client.run_many((0..1_000).map(|n| format!("FAIRLOCK.ACQUIRE l{n} a LEASE 600000")));
    let out = once(&server, &[]);
    // Fewer, if a look has searched a part of the keys only.
    assert!(out.contains(" locks are shown, those with most"), "{out}");
    assert_eq!(names(&out)[..3], ["!", "stock", "mail"]);
}

#[test]
fn hand_offs_are_counted() {
    let (server, mut client) = Server::connected();
    wait_until("hand-offs are counted", || {
        let mut program = Program::start(server.port, &["top", "--interval", "200ms"]);
        while !program.has_ended() {
            client.int("FAIRLOCK.ACQUIRE k a");
            let blocked = server.block("FAIRLOCK.ACQUIRE k b");
            client.int("FAIRLOCK.RELEASE k a");
            blocked.int();
            client.int("FAIRLOCK.RELEASE k b");
        }
        let out = program.end().said();
        !out.contains("hand-offs=0.0/s") && !out.contains("wait-p99=0us")
    });
}

#[test]
fn a_reader_that_has_enough_ends_it() {
    let server = Server::start();
    for command in ["top --interval 1ms", "locks", "info k", "metrics"] {
        // Its end may be closed before anything is printed.
        let line = format!("(\"$FAIRLOCK\" {command}; echo $? >&2) | true");
        let ended = Program::in_shell(server.port, &line).end();
        assert_eq!((ended.code, ended.errors.as_str()), (0, "0\n"), "{ended:?}");
    }
}
