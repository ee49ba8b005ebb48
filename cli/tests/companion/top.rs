//! `fairlock top` as lines and JSON.

use fairlock_testing::{Client, Server, wait_until};
use serde_json::Value;

use crate::program::{PATH, Program};

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
    let ended = Program::ended(server.port, &args);
    assert_eq!((ended.code, ended.errors.as_str()), (0, ""));
    ended.out
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
    let rates = " hand-offs=0.0/s acquisitions=0.0/s ";
    assert!(lines[0].contains(rates), "{out}");
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
    let limited = once(&server, &["--limit", "3"]);
    assert!(limited.contains(" only 3 locks are shown"), "{limited}");
    assert_eq!(names(&limited), ["!", "stock", "mail", "bound"]);
    // Nothing is left out where there are just as many.
    assert!(!once(&server, &["--limit", "4"]).contains("\n!"));
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
fn a_look_is_an_object_of_json() {
    let server = Server::start();
    let _client = scene(&server);
    let look: Value = serde_json::from_str(&once(&server, &["--json"])).expect("JSON");
    let stock = &look["locks"][0];
    assert_eq!(stock["name"], "stock");
    assert_eq!(stock["owner"], "ann");
    assert_eq!(stock["next"], "one");
    assert!(stock["lease_ms"].as_i64() > Some(500_000));
    assert_eq!(look["locks"][3]["session"], true);
    assert_eq!(look["locks"][3]["limit"], 3);
    assert_eq!(look["summary"]["locks"], 3);
    assert_eq!(look["notices"], Value::Array(Vec::new()));
}

#[test]
fn looks_go_on_and_hand_offs_are_counted_until_sigterm() {
    let server = Server::start();
    let program = Program::start(server.port, &["top", "--json", "--interval", "20ms"]);
    let mut client = server.connect();
    wait_until("hand-offs are counted", || {
        for _ in 0..10 {
            client.int("FAIRLOCK.ACQUIRE k a");
            let blocked = server.block("FAIRLOCK.ACQUIRE k b");
            client.int("FAIRLOCK.RELEASE k a");
            blocked.int();
            client.int("FAIRLOCK.RELEASE k b");
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
    for command in ["top --interval 1ms", "locks", "metrics"] {
        // Its end may be closed before anything is printed.
        let line = format!("({PATH} {command}; echo $? >&2) | true");
        let ended = Program::start_by(&["sh", "-c", &line], server.port).end();
        assert_eq!((ended.code, ended.errors.as_str()), (0, "0\n"), "{ended:?}");
    }
}
