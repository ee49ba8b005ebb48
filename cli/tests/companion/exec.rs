//! `fairlock exec`: waiting, running, giving back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use fairlock_testing::{Server, wait_until};

use crate::program::Program;

#[test]
fn the_commands_status_is_passed_on() {
    let server = Server::start();
    for (command, code, error) in [
        (&["sh", "-c", "exit 0"][..], 0, ""),
        (&["sh", "-c", "exit 7"], 7, ""),
        (&["sh", "-c", "kill -TERM $$"], 143, ""),
        (&["no-such-command"], 127, "no-such-command"),
        (&["/"], 126, "/"),
    ] {
        let ended = Program::ended(server.port, &[&["exec", "k", "--"], command].concat());
        ended.failed(code, error);
        assert_eq!(ended.errors.is_empty(), error.is_empty(), "{ended:?}");
        // The lock is free by the time the program has ended.
        assert_eq!(server.connect().run("EXISTS k"), "0");
    }
}

#[test]
fn the_command_is_told_what_it_holds_and_the_lock_is_bound_to_the_connection() {
    let (server, mut client) = Server::connected();
    let script = "echo $FAIRLOCK_KEY $FAIRLOCK_TOKEN $FAIRLOCK_OWNER; exec sleep 100";
    let program = Program::script(server.port, &["--lease", "90s"], script);
    program.wait_for("\n");
    let told = program.printed("out");
    let owner = told.trim().rsplit(' ').next().expect("an owner");
    assert_eq!(told, format!("k {} {owner}\n", client.token("k")));
    assert_eq!(owner.matches(':').count(), 2, "{owner}");
    assert_eq!(client.holders("k"), format!("[{owner}, 1]"));
    // It is renewed after a third.
    assert!((50_000..=90_000).contains(&client.int("PTTL k")));
    assert!(client.run("FAIRLOCK.INFO k").contains("session, 1"));
    assert_eq!(program.terminate(), 143);
}

#[test]
fn a_lock_that_cannot_be_had_in_time_is_not_acquired() {
    let (server, mut client) = Server::connected_with(&["--fairlock.max-waiters", "1"]);
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    for (wait, why) in [
        ("0", "it is held, or others wait for it"),
        ("50ms", "not within 50ms"),
    ] {
        let args = ["exec", "k", "--wait", wait, "--", "echo", "started"];
        let ended = Program::ended(server.port, &args);
        ended.failed(75, &format!("did not get the lock k: {why}"));
        assert_eq!(ended.out, "");
        assert!(client.run("FAIRLOCK.INFO k").contains("waiting, 0"));
    }
    let cancelled = Program::waiting(&server, &["--owner", "me"]);
    assert_eq!(client.run("FAIRLOCK.CANCEL k me"), "1");
    assert_eq!(cancelled.end().code, 75);
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let full = Program::ended(server.port, &["exec", "k", "--", "true"]);
    full.failed(75, "QUEUEFULL");
}

#[test]
fn those_that_share_the_lock_run_together_and_the_next_one_waits() {
    for (options, next) in [
        (&["--shared"][..], &[][..]),
        (&["--limit", "2"], &["--limit", "2"]),
    ] {
        let (server, mut client) = Server::connected();
        let together = [(); 2].map(|()| Program::holding(server.port, options));
        let mut next = Program::waiting(&server, next);
        let mut third = vec!["exec", "k", "--wait", "0"];
        third.extend(options.iter().chain(&["--", "true"]));
        let refused = Program::ended(server.port, &third);
        refused.failed(75, "FAIRLOCK.HOLDERS k says who");
        assert!(!next.has_ended());
        for one in together {
            assert_eq!(one.terminate(), 143);
        }
        assert_eq!(next.end().code, 3);
        assert_eq!(client.run("DBSIZE"), "0");
    }
}

#[test]
fn a_wait_that_is_cut_short_is_taken_up_again() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let program = Program::waiting(&server, &["--wait", "10m"]);
    client.run("CLIENT KILL TYPE normal SKIPME yes");
    program.wait_for_error("was cut short");
    wait_until("it waits again", || server.blocked() == 1);
    // As a server does that becomes a replica.
    let list = client.text("CLIENT LIST");
    let mut list = list.split("\\n");
    let waits = list.find(|line| line.contains(" flags=b ")).expect("it");
    let id = waits.split([' ', '=']).nth(1).expect("an id");
    assert_eq!(client.run(&format!("CLIENT UNBLOCK {id} ERROR")), "1");
    client.int("FAIRLOCK.RELEASE k a");
    assert_eq!(program.end().code, 3);
}

#[test]
fn a_wait_without_a_server_is_given_up() {
    let mut server = Server::start();
    server.connect().int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let program = Program::waiting(&server, &["--reconnect", "300ms"]);
    server.signal("KILL");
    server.exit_code();
    program.end().failed(69, "cannot reach the server");
}

#[test]
fn a_locks_name_is_any_bytes() {
    let server = Server::start();
    let key = OsStr::from_bytes(b"k\xff\n");
    let exec = |script: &str| {
        let command = ["--wait", "0", "--", "sh", "-c", script].map(OsStr::new);
        let args = [&[OsStr::new("exec"), key], &command[..]].concat();
        Program::ended(server.port, &args)
    };
    let ended = exec("printf %s \"$FAIRLOCK_KEY\" | od -An -tx1");
    assert_eq!(ended.said().trim(), "6b ff 0a");
    let acquire = [&b"FAIRLOCK.ACQUIRE"[..], b"k\xff\n", b"a"];
    server.connect().raw(&acquire).expect("acquired");
    exec("true").failed(75, "did not get the lock k\\xff\\n:");
}
