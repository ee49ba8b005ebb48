//! `fairlock exec` when the lock is lost.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fairlock_testing::{Server, is_alive, wait_until};

use crate::program;

#[test]
fn whatever_takes_the_lock_away_ends_the_command_and_is_told_in_a_line() {
    let (kill, free) = ("CLIENT KILL TYPE normal SKIPME yes", "FAIRLOCK.BREAK k");
    let other = "FAIRLOCK.ACQUIRE k an\u{1b}other";
    let (me, shared) = ("FAIRLOCK.ACQUIRE k me", "FAIRLOCK.ACQUIRE k me SHARED 3");
    let by_owner = "acquired anew as the same owner";
    for (options, happens, text) in [
        ("", &[kill][..], "the connection to the server at 127."),
        ("", &[free], "lost the lock k: it was freed"),
        ("", &["DEL k", other], "an\\u{1b}other holds it now"),
        ("", &[free, me], by_owner),
        // One among several.
        ("--limit 3", &[free, shared], by_owner),
        ("", &[], "the server is gone"),
    ] {
        let server = Server::start();
        let program = program::holding(server.port, &format!("--owner me {options}"));
        if happens.is_empty() {
            server.signal("KILL");
        } else {
            server.connect().at_once(happens);
        }
        let ended = program.end();
        ended.failed(76, text);
        assert_eq!(ended.errors.lines().count(), 1, "{ended:?}");
    }
}

#[test]
fn without_an_answer_the_command_ends_before_the_lease_can() {
    let server = Server::start();
    // It does not end by SIGTERM.
    let script = "trap '' TERM; echo $$; sleep 100; :";
    let program = program::script(server.port, "--lease 20s --grace 500ms", script);
    let [command] = program.pids();
    server.while_stopped(|| {
        let start = Instant::now();
        wait_until("the command has ended", || !is_alive(command));
        // Of the lease a tenth is kept for what a busy machine is late by.
        assert!(start.elapsed() < Duration::from_secs(20));
        program.end().failed(76, "its lease may end soon");
    });
}

/// The lease is longer than the server's pause: nobody can have had the lock in between.
#[test]
fn a_server_that_was_silent_at_the_release_may_answer_late() {
    let server = Server::start();
    let mut program = program::script(server.port, "", "echo ready; read line; exit 3");
    program.wait_for("ready\n");
    server.while_stopped(|| {
        program.type_in("\n");
        sleep(Duration::from_secs(6));
    });
    assert_eq!(program.end().code, 3);
}

/// As by Ctrl-Z. The server renews the lock for as long as there is the connection.
#[test]
fn a_program_that_was_stopped_for_longer_than_the_lease_asks_before_it_believes_in_a_loss() {
    let (server, mut client) = Server::connected();
    let mut program = program::holding(server.port, "--lease 20s");
    program.signal("STOP");
    client.int("FAIRLOCK.ACQUIRE as-long me LEASE 20000");
    wait_until("a lease is over", || client.int("EXISTS as-long") == 0);
    let asked = || server.info("commandstats", "cmdstat_fairlock.holders");
    let before = asked();
    program.signal("CONT");
    wait_until("it asks", || program.has_ended() || asked() != before);
    assert!(!program.has_ended());
    assert_eq!(program.terminate(), 143);
}

#[test]
fn what_the_command_has_started_ends_with_it_unless_it_may_go_on() {
    let (server, mut client) = Server::connected();
    // Also if it ignores the signal.
    let child = "sh -c 'trap \"\" TERM; echo $$; exec sleep 100'";
    for script in [
        "trap '' TERM; sleep 100 & echo $!; echo $$; wait",
        &format!("{child} & echo $$; wait"),
    ] {
        let program = program::script(server.port, "--grace 100ms", script);
        let pids: [u32; 2] = program.pids();
        client.run("FAIRLOCK.BREAK k");
        program.end().failed(76, "");
        assert!(!pids.into_iter().any(is_alive), "{script}");
    }
    // In a terminal that stays.
    let exec = "\"$FAIRLOCK\" exec k -- sh -c 'sleep 300 & echo $!; wait; true'";
    let mut program = program::in_terminal(server.port, &format!("{exec}; echo ended $?; read x"));
    let [started] = program.pids();
    client.run("FAIRLOCK.BREAK k");
    program.wait_for("ended 76");
    assert!(!is_alive(started));
    program.type_in("\n");
    assert_eq!(program.end().code, 0);
    // The command can be let go on.
    let script = "trap 'echo goes on; exit' USR1; echo ready; while :; do sleep 0.05; done";
    let program = program::script(server.port, "--on-loss ignore", script);
    program.wait_for("ready\n");
    client.run("FAIRLOCK.BREAK k");
    program.wait_for_error("the command goes on");
    // Whatever the loss brings the command was sent before this.
    program.signal("USR1");
    let ended = program.end();
    assert_eq!((ended.code, ended.out.as_str()), (76, "ready\ngoes on\n"));
    // The program itself is killed.
    let program = program::script(server.port, "", "echo $$; exec sleep 100");
    let [command] = program.pids();
    program.signal("KILL");
    assert_eq!(program.end().code, -1);
    wait_until("the command has ended", || !is_alive(command));
    wait_until("the lock is free", || client.run("EXISTS k") == "0");
}
