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
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        let ended = Program::ended(server.port, &["exec", "k", "--", "sh", "-c", script]);
        assert_eq!((ended.code, ended.errors.as_str()), (code, ""), "{script}");
        // The lock is free by the time the program has ended.
        assert_eq!(server.connect().run("EXISTS k"), "0");
    }
}

#[test]
fn a_command_that_cannot_be_run_is_told_apart() {
    let server = Server::start();
    let missing = Program::ended(server.port, &["exec", "k", "--", "no-such-command"]);
    assert_eq!(missing.code, 127);
    assert!(missing.errors.contains("no-such-command"), "{missing:?}");
    let directory = Program::ended(server.port, &["exec", "k", "--", "/"]);
    assert_eq!(directory.code, 126);
    assert_eq!(server.connect().run("EXISTS k"), "0");
}

#[test]
fn the_command_is_told_key_owner_and_token_and_the_token_grows() {
    let server = Server::start();
    let port = server.port;
    let script = format!(
        "echo \"$FAIRLOCK_KEY $FAIRLOCK_TOKEN $FAIRLOCK_OWNER\"; redis-cli -p {port} HGET k ''"
    );
    let run = || {
        let ended = Program::ended(server.port, &["exec", "k", "--", "sh", "-c", &script]);
        let words: Vec<String> = ended.out.split_whitespace().map(str::to_owned).collect();
        assert_eq!([&words[0], &words[1]], ["k", &words[3]]);
        (words[1].parse::<i64>().expect("a number"), words[2].clone())
    };
    let ((one, owner), (two, other)) = (run(), run());
    assert!(two > one);
    assert_ne!(owner, other);
    assert_eq!(owner.matches(':').count(), 2, "{owner}");
}

#[test]
fn the_lock_is_bound_to_the_connection_for_the_lease_that_was_asked_for() {
    let server = Server::start();
    let mut client = server.connect();
    let program = Program::holding(server.port, &["--lease", "90s", "--owner", "me"]);
    assert_eq!(client.holders("k"), "[me, 1]");
    // It is renewed after a third.
    assert!((50_000..=90_000).contains(&client.int("PTTL k")));
    assert!(client.run("FAIRLOCK.INFO k").contains("session, 1"));
    program.signal("TERM");
    assert_eq!(program.end().code, 143);
}

#[test]
fn a_lock_that_is_held_is_not_acquired_in_time() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let dir = TempDir::new().expect("a directory");
    let witness = dir.path().join("witness");
    let witness = witness.to_str().expect("a path");
    for wait in ["0", "50ms"] {
        let args = ["exec", "k", "--wait", wait, "--", "touch", witness];
        let ended = Program::ended(server.port, &args);
        ended.failed(75, "did not get the lock k");
        assert!(!fs::exists(witness).expect("looked"));
        assert!(client.run("FAIRLOCK.INFO k").contains("waiting, 0"));
    }
}

#[test]
fn a_full_queue_is_not_acquired_either() {
    let server = Server::with(&["--fairlock.max-waiters", "1"]);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let ended = Program::ended(server.port, &["exec", "k", "--", "true"]);
    ended.failed(75, "QUEUEFULL");
}

#[test]
fn it_waits_for_its_turn() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    for wait in [&[][..], &["--wait", "1h"]] {
        let args = [&["exec", "k"], wait, &["--", "sh", "-c", "exit 3"]].concat();
        let mut program = Program::start(server.port, &args);
        wait_until("it waits", || server.blocked() == 1);
        assert!(!program.has_ended());
        client.int("FAIRLOCK.RELEASE k a");
        assert_eq!(program.end().code, 3);
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    }
}

#[test]
fn two_commands_never_overlap() {
    let server = Server::start();
    let dir = TempDir::new().expect("a directory");
    // A directory can be made only once.
    let script =
        "cd \"$1\" && mkdir inside && sleep 0.02 && echo $FAIRLOCK_TOKEN >> tokens && rmdir inside";
    let dir_name = dir.path().to_str().expect("a path");
    let args = ["exec", "k", "--", "sh", "-c", script, "sh", dir_name];
    let programs: Vec<_> = (0..8).map(|_| Program::start(server.port, &args)).collect();
    for program in programs {
        let ended = program.end();
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    let tokens = fs::read_to_string(dir.path().join("tokens")).expect("tokens");
    let tokens: Vec<i64> = tokens
        .lines()
        .map(|token| token.parse().expect("a number"))
        .collect();
    assert_eq!(tokens.len(), 8);
    assert!(tokens.is_sorted());
}

#[test]
fn one_within_another_by_the_same_owner_holds_together_with_it() {
    let server = Server::start();
    let mut client = server.connect();
    let script =
        "\"$FAIRLOCK\" exec k --owner \"$FAIRLOCK_OWNER\" -- true && echo inner && exec sleep 100";
    let program = Program::start(server.port, &["exec", "k", "--", "sh", "-c", script]);
    program.wait_for("inner\n");
    assert!(client.run("FAIRLOCK.INFO k").contains("holds, 1,"));
    program.signal("TERM");
    assert_eq!(program.end().code, 143);
    assert_eq!(client.run("EXISTS k"), "0");
}

#[test]
fn a_wait_that_is_cut_short_is_taken_up_again() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let program = Program::start(server.port, &["exec", "k", "--wait", "10m", "--", "true"]);
    wait_until("it waits", || server.blocked() == 1);
    let first = connection(&server, " flags=b ");
    kill_connection(&mut client, first);
    program.wait_for_error("was cut short");
    wait_until("it waits again", || server.blocked() == 1);
    let second = connection(&server, " flags=b ");
    assert_ne!(first, second);
    client.run(&format!("CLIENT UNBLOCK {second} ERROR"));
    wait_until("it waits once more", || {
        server.blocked() == 1 && connection(&server, " flags=b ") != second
    });
    client.int("FAIRLOCK.RELEASE k a");
    assert_eq!(program.end().code, 0);
}

#[test]
fn a_wait_without_a_server_is_given_up() {
    let mut server = Server::start();
    server.connect().int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let args = ["exec", "k", "--reconnect", "300ms", "--", "true"];
    let program = Program::start(server.port, &args);
    wait_until("it waits", || server.blocked() == 1);
    server.signal("KILL");
    server.exit_code();
    let ended = program.end();
    ended.failed(69, "cannot reach the server");
}

#[test]
fn a_cancelled_wait_is_not_acquired() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let program = Program::start(server.port, &["exec", "k", "--owner", "me", "--", "true"]);
    wait_until("it waits", || server.blocked() == 1);
    assert_eq!(client.run("FAIRLOCK.CANCEL k me"), "1");
    assert_eq!(program.end().code, 75);
}

#[test]
fn keys_and_owners_are_any_bytes() {
    let server = Server::start();
    let key = OsStr::from_bytes(b"k\xff\n");
    let script = "printf %s \"$FAIRLOCK_KEY\" | od -An -tx1";
    let words = ["--owner", "\u{1b}x", "--", "sh", "-c", script];
    let mut args = vec![OsStr::new("exec"), key];
    args.extend(words.map(OsStr::new));
    let ended = Program::ended(server.port, &args);
    assert_eq!(ended.out.trim(), "6b ff 0a", "{ended:?}");
    let mut client = server.connect();
    client
        .raw(&[b"FAIRLOCK.ACQUIRE", b"k\xff\n", b"a"])
        .expect("acquired");
    let mut args = vec![OsStr::new("exec"), key];
    args.extend(["--wait", "0", "--", "true"].map(OsStr::new));
    let ended = Program::ended(server.port, &args);
    assert!(
        ended.errors.contains("did not get the lock k\\xff\\n:"),
        "{ended:?}"
    );
}

#[test]
fn readers_run_together_and_a_writer_alone() {
    let server = Server::start();
    let mut client = server.connect();
    let readers = [(); 2].map(|()| Program::holding(server.port, &["--shared"]));
    let info = client.run("FAIRLOCK.INFO k");
    assert!(info.contains("holders, 2, limit, 0"), "{info}");
    let mut writer = Program::start(server.port, &["exec", "k", "--", "sh", "-c", "exit 5"]);
    wait_until("it waits", || server.blocked() == 1);
    let args = ["exec", "k", "--shared", "--wait", "0", "--", "true"];
    let refused = Program::ended(server.port, &args);
    refused.failed(75, "FAIRLOCK.HOLDERS k says who");
    assert!(!writer.has_ended());
    for reader in readers {
        reader.signal("TERM");
        assert_eq!(reader.end().code, 143);
    }
    assert_eq!(writer.end().code, 5);
    assert_eq!(client.run("DBSIZE"), "0");
}

#[test]
fn no_more_run_together_than_the_limit() {
    let server = Server::start();
    let dir = TempDir::new().expect("a directory");
    // Each of two places is a directory, which can be made only once; one is always free.
    let script = "cd \"$1\" && { mkdir a 2>/dev/null && p=a || { mkdir b && p=b; }; } && \
        sleep 0.02 && echo $FAIRLOCK_TOKEN >> tokens && rmdir $p";
    let dir_name = dir.path().to_str().expect("a path");
    let args = [
        "exec", "k", "--limit", "2", "--", "sh", "-c", script, "sh", dir_name,
    ];
    let programs: Vec<_> = (0..8).map(|_| Program::start(server.port, &args)).collect();
    for program in programs {
        let ended = program.end();
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    let tokens = fs::read_to_string(dir.path().join("tokens")).expect("tokens");
    let tokens: std::collections::BTreeSet<&str> = tokens.lines().collect();
    assert_eq!(tokens.len(), 8);
}

#[test]
fn so_many_as_the_limit_run_at_the_same_time() {
    let server = Server::start();
    let script = "echo ready; exec sleep 100";
    let args = ["exec", "k", "--limit", "2", "--", "sh", "-c", script];
    let start = || Program::start(server.port, &args);
    let (first, second, third) = (start(), start(), start());
    wait_until("two run", || server.blocked() == 1);
    let running = |program: &Program| program.out().contains("ready");
    let all = [first, second, third];
    wait_until("they are ready", || {
        all.iter().filter(|one| running(one)).count() == 2
    });
    let (mut there, mut waiting): (Vec<_>, Vec<_>) = all.into_iter().partition(running);
    let one = there.pop().expect("a program that runs");
    one.signal("TERM");
    assert_eq!(one.end().code, 143);
    let next = waiting.pop().expect("a program that waits");
    next.wait_for("ready\n");
    assert!(!there[0].has_ended());
}
