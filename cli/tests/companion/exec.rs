//! `fairlock exec`: waiting, running, giving back.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use fairlock_testing::{Server, wait_until};
use tempfile::TempDir;

use crate::program::{Program, connection, kill_connection};

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
    let out = program.out();
    let words: Vec<&str> = out.split_whitespace().collect();
    let [key, token, owner] = words[..] else {
        panic!("{out}");
    };
    assert_eq!(key, "k");
    assert_eq!(token, client.token("k").to_string());
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

/// Each of eight commands finds a folder to make, which succeeds only once.
#[test]
fn two_commands_never_overlap() {
    let server = Server::start();
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().display();
    let script =
        format!("cd {path} && mkdir a && sleep 0.02 && echo $FAIRLOCK_TOKEN >> tokens && rmdir a");
    let programs = [(); 8].map(|()| Program::script(server.port, &[], &script));
    for program in programs {
        // It may have said that it waited.
        program.end().failed(0, "");
    }
    let tokens = fs::read_to_string(dir.path().join("tokens")).expect("tokens");
    let tokens = tokens.lines().map(str::parse::<i64>);
    let tokens: Vec<_> = tokens.collect::<Result<_, _>>().expect("numbers");
    assert!(tokens.len() == 8 && tokens.is_sorted(), "{tokens:?}");
}

#[test]
fn as_many_as_the_limit_run_at_the_same_time_and_no_more() {
    let server = Server::start();
    let limit = ["--limit", "2"];
    let [first, mut second] = [(); 2].map(|()| Program::holding(server.port, &limit));
    let third = Program::script(server.port, &limit, "echo ready");
    wait_until("it waits", || server.blocked() == 1);
    assert_eq!(first.terminate(), 143);
    third.wait_for("ready\n");
    assert!(!second.has_ended());
}

#[test]
fn one_within_another_by_the_same_owner_holds_together_with_it() {
    let (server, mut client) = Server::connected();
    let script =
        "\"$FAIRLOCK\" exec k --owner \"$FAIRLOCK_OWNER\" -- true && echo inner && exec sleep 100";
    let program = Program::script(server.port, &[], script);
    program.wait_for("inner\n");
    assert!(client.run("FAIRLOCK.INFO k").contains("holds, 1,"));
    assert_eq!(program.terminate(), 143);
    assert_eq!(client.run("EXISTS k"), "0");
}

#[test]
fn a_wait_that_is_cut_short_is_taken_up_again() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let program = Program::waiting(&server, &["--wait", "10m"]);
    let first = kill_connection(&server, " flags=b ");
    program.wait_for_error("was cut short");
    wait_until("it waits again", || server.blocked() == 1);
    let second = connection(&server, " flags=b ");
    assert_ne!(first, second);
    client.run(&format!("CLIENT UNBLOCK {second} ERROR"));
    wait_until("it waits once more", || {
        server.blocked() == 1 && connection(&server, " flags=b ") != second
    });
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
fn keys_and_owners_are_any_bytes() {
    let server = Server::start();
    let exec = |options: [&str; 6]| {
        let key = [OsStr::new("exec"), OsStr::from_bytes(b"k\xff\n")];
        let args = key.into_iter().chain(options.map(OsStr::new));
        Program::ended(server.port, &args.collect::<Vec<_>>())
    };
    let script = "printf %s \"$FAIRLOCK_KEY\" | od -An -tx1";
    let ended = exec(["--owner", "\u{1b}x", "--", "sh", "-c", script]);
    assert_eq!(ended.said().trim(), "6b ff 0a");
    let taken = server
        .connect()
        .raw(&[b"FAIRLOCK.ACQUIRE", b"k\xff\n", b"a"]);
    taken.expect("acquired");
    let ended = exec(["--wait", "0", "--", "sh", "-c", "true"]);
    ended.failed(75, "did not get the lock k\\xff\\n:");
}

#[test]
fn readers_run_together_and_a_writer_alone() {
    let (server, mut client) = Server::connected();
    let readers = [(); 2].map(|()| Program::holding(server.port, &["--shared"]));
    let info = client.run("FAIRLOCK.INFO k");
    assert!(info.contains("holders, 2, limit, 0"), "{info}");
    let mut writer = Program::waiting(&server, &[]);
    let args = ["exec", "k", "--shared", "--wait", "0", "--", "true"];
    let refused = Program::ended(server.port, &args);
    refused.failed(75, "FAIRLOCK.HOLDERS k says who");
    assert!(!writer.has_ended());
    for reader in readers {
        assert_eq!(reader.terminate(), 143);
    }
    assert_eq!(writer.end().code, 3);
    assert_eq!(client.run("DBSIZE"), "0");
}
