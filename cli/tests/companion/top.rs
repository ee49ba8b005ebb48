//! `fairlock top` as lines and JSON.

use fairlock_testing::{Client, Server, wait_until};
use serde_json::Value;

use crate::program::Program;

/// `stock` has two waiters, `mail` one, `bound` a session.
fn scene(server: &Server) -> Client {
    let mut client = server.connect();
    for (lock, owner) in [("stock", "ann"), ("mail", "bob")] {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} {owner} LEASE 600000"));
    }
    for command in ["stock one", "stock two", "mail one"] {
        client.run(&format!("FAIRLOCK.ACQUIRE {command} ENQUEUE"));
    }
    client.int("FAIRLOCK.ACQUIRE bound carl SESSION LEASE 600000");
    client
}

fn once(server: &Server, args: &[&str]) -> String {
    let args = [&["top", "--once", "--interval", "10ms"], args].concat();
    let ended = Program::ended(server.port, &args);
    assert_eq!((ended.code, ended.errors.as_str()), (0, ""));
    ended.out
}

fn names(out: &str) -> Vec<&str> {
    let lines = out.lines().skip(1);
    lines.filter_map(|line| line.split(' ').next()).collect()
}

#[test]
fn a_lock_is_a_line() {
    let server = Server::start();
    let _client = scene(&server);
    let out = once(&server, &[]);
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[0].contains(" hand-offs=0.0/s acquisitions=0.0/s "),
        "{out}"
    );
    assert!(lines[0].ends_with(" blocked=0 sessions=1 locks=3"), "{out}");
    assert!(lines[1].starts_with("stock holder=ann held="), "{out}");
    assert!(lines[1].contains(" waiting=2 next=one token="), "{out}");
    assert!(lines[3].contains(" waiting=0 next=- "), "{out}");
    assert!(lines[3].contains(" session=yes "), "{out}");
}

#[test]
fn lines_are_sorted_and_filtered() {
    let server = Server::start();
    let _client = scene(&server);
    assert_eq!(names(&once(&server, &[])), ["stock", "mail", "bound"]);
    assert_eq!(
        names(&once(&server, &["--sort", "name"])),
        ["bound", "mail", "stock"]
    );
    let args = ["--sort", "name", "--filter", "ONE"];
    assert_eq!(names(&once(&server, &args)), ["mail", "stock"]);
    assert_eq!(names(&once(&server, &["--filter", "ann"])), ["stock"]);
    let limited = once(&server, &["--limit", "1"]);
    assert!(limited.contains("\n! of 127.0.0.1:"), "{limited}");
    assert_eq!(names(&limited), ["!", "stock"]);
    // Nothing is left out where there are just as many.
    assert_eq!(names(&once(&server, &["--limit", "3"])).len(), 3);
}

#[test]
fn a_look_is_an_object_of_json() {
    let server = Server::start();
    let _client = scene(&server);
    let look: Value = serde_json::from_str(&once(&server, &["--json"])).expect("JSON");
    let stock = &look["locks"][0];
    assert_eq!(stock["name"], "stock");
    assert_eq!(stock["owner"], "ann");
    assert_eq!(stock["waiting"], 2);
    assert_eq!(stock["next"], "one");
    assert!(stock["lease_ms"].as_i64() > Some(500_000));
    assert_eq!(look["locks"][2]["session"], true);
    assert_eq!(look["summary"]["locks"], 3);
    assert_eq!(look["notices"], Value::Array(Vec::new()));
}

#[test]
fn looks_go_on_and_hand_offs_are_counted() {
    let server = Server::start();
    let args = ["top", "--json", "--interval", "20ms"];
    let program = Program::start(server.port, &args);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let mut holder = "a".to_owned();
    wait_until("hand-offs are counted", || {
        for _ in 0..10 {
            let waiter = if holder == "a" { "b" } else { "a" };
            let blocked = server.block(&format!("FAIRLOCK.ACQUIRE k {waiter}"));
            client.int(&format!("FAIRLOCK.RELEASE k {holder}"));
            blocked.int();
            holder = waiter.to_owned();
        }
        let out = program.out();
        let complete = out.rfind('\n').map_or("", |end| &out[..end]);
        complete.lines().any(|line| {
            let look: Value = serde_json::from_str(line).expect("JSON");
            look["summary"]["hand_offs_per_second"].as_f64() > Some(0.0)
                && look["summary"]["wait_p99_usec"].as_u64() > Some(0)
        })
    });
    // A code of its own, not the signal's: as PID 1 the kernel would ignore a signal that nobody listens to.
    program.signal("TERM");
    assert_eq!(program.end().code, 143);
}

#[test]
fn a_server_that_goes_away_is_told_of_and_waited_for() {
    let mut server = Server::start();
    let mut program = Program::start(server.port, &["top", "--interval", "20ms"]);
    program.wait_for("hand-offs=");
    server.signal("KILL");
    server.exit_code();
    program.wait_for_error("cannot reach the server at");
    assert!(!program.has_ended());
}

#[test]
fn a_reader_that_has_enough_ends_it() {
    let server = Server::start();
    let line = format!(
        "FAIRLOCK_URL=redis://127.0.0.1:{} {} top --interval 1ms 2>&1 | head -n 1",
        server.port,
        crate::program::PATH
    );
    let mut shell = std::process::Command::new("sh");
    let out = shell.args(["-c", &line]).output().expect("a shell");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("hand-offs="), "{text}");
}

#[test]
fn names_are_one_line_whatever_they_are() {
    let server = Server::start();
    let mut client = server.connect();
    let name = b"a\n\x1b[2J\xff b";
    let reply = client.raw(&[b"FAIRLOCK.ACQUIRE", name, b"x", b"SESSION"]);
    reply.expect("acquired");
    let out = once(&server, &[]);
    assert!(out.contains("\"a\\n\\u{1b}[2J\\xff b\" holder=x"), "{out}");
    let look: Value = serde_json::from_str(&once(&server, &["--json"])).expect("JSON");
    assert_eq!(look["locks"][0]["name"], "a\\n\\u{1b}[2J\\xff b");
}

#[test]
fn a_lock_with_several_holders_tells_how_many() {
    let server = Server::start();
    let mut client = server.connect();
    for owner in ["ann", "bob", "carl"] {
        client.int(&format!("FAIRLOCK.ACQUIRE pool {owner} SHARED 3 SESSION"));
    }
    let out = once(&server, &[]);
    assert!(
        out.contains("\npool holder=ann holders=3 limit=3 held="),
        "{out}"
    );
    let look: Value = serde_json::from_str(&once(&server, &["--json"])).expect("JSON");
    assert_eq!(look["locks"][0]["holders"], 3);
    assert_eq!(look["locks"][0]["limit"], 3);
}

#[test]
fn locks_without_waiters_are_shown_behind_the_others() {
    let server = Server::start();
    let mut client = scene(&server);
    client.int("FAIRLOCK.ACQUIRE alone dora LEASE 600000");
    client.run("HSET data field 1");
    assert_eq!(
        names(&once(&server, &[])),
        ["stock", "mail", "alone", "bound"]
    );
    let limited = once(&server, &["--limit", "3"]);
    assert!(limited.contains(" only 3 locks are shown"), "{limited}");
    assert_eq!(names(&limited), ["!", "stock", "mail", "bound"]);
    assert!(!once(&server, &["--limit", "4"]).contains("\n!"));
}
