//! Signals that the program gets, from other processes and from a terminal.

use fairlock_testing::{Server, send_signal, wait_until};

use crate::program;

#[test]
fn they_are_passed_on_to_the_command() {
    let server = Server::start();
    for signal in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"] {
        let script = format!(
            "trap 'echo {signal}; exit 5' {signal}; echo ready; while :; do sleep 0.05; done"
        );
        let program = program::script(server.port, "", &script);
        program.wait_for("ready\n");
        program.signal(signal);
        let ended = program.end();
        assert_eq!((ended.code, ended.out), (5, format!("ready\n{signal}\n")));
    }
}

#[test]
fn during_the_wait_they_end_it_and_the_place_is_given_up() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    // A code of its own, not the signal's: as PID 1 the kernel would ignore a signal that nobody listens to.
    for (signal, code) in [("HUP", 129), ("INT", 130), ("TERM", 143)] {
        let program = program::waiting(&server, "");
        program.signal(signal);
        assert_eq!(program.end().code, code);
        wait_until("the queue is empty", || {
            client.run("FAIRLOCK.INFO k").contains("waiting, 0")
        });
    }
}

#[test]
fn what_was_ignored_stays_ignored() {
    let server = Server::start();
    let signals = "sh -c 'kill -HUP $PPID $$; echo both are there'";
    let script = format!("trap '' HUP; exec \"$FAIRLOCK\" exec k -- {signals}");
    let ended = program::in_shell(server.port, &script).end();
    assert_eq!(ended.said(), "both are there\n");
}

/// With a code of its own, as during the wait.
#[test]
fn they_end_a_question_that_takes_long() {
    let server = Server::start();
    let asked = || server.info("commandstats", "cmdstat_fairlock.locks");
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let before = asked();
        let program = program::start(server.port, "top --interval 10m");
        wait_until("it has begun", || asked() != before);
        program.signal(signal);
        assert_eq!(program.end().code, code);
    }
}

/// The terminal sends it to the whole group in the foreground, which one of the commands has left.
#[test]
fn control_c_is_left_to_the_terminal_and_other_signals_are_passed_on() {
    let server = Server::start();
    let script =
        "trap 'echo got-it' INT; trap 'echo told' USR1; echo ready; while :; do sleep 0.05; done";
    for (command, reached) in [("sh", 1), ("setsid sh", 0)] {
        let exec = "exec \"$FAIRLOCK\" exec k --";
        let line = format!("echo $$; {exec} {command} -c \"{script}\"");
        let mut program = program::in_terminal(server.port, &line);
        let [pid] = program.pids();
        program.wait_for("ready");
        program.type_in("\u{3}");
        if reached > 0 {
            program.wait_for("got-it");
        }
        send_signal(pid, "USR1");
        program.wait_for("told");
        send_signal(pid, "TERM");
        let ended = program.end();
        assert_eq!(ended.out.matches("got-it").count(), reached, "{ended:?}");
    }
}
