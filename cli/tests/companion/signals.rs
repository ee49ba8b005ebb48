//! Signals that the program gets, from other processes and from a terminal.

use fairlock_testing::{Server, send_signal};

use crate::program;

#[test]
fn they_are_passed_on_to_the_command_and_what_was_ignored_stays_ignored() {
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
    let signals = "sh -c 'kill -HUP $PPID $$; echo both are there'";
    let script = format!("trap '' HUP; exec \"$FAIRLOCK\" exec k -- {signals}");
    let ended = program::in_shell(server.port, &script).end();
    assert_eq!(ended.said(), "both are there\n");
}

/// As by a daemon that waits for its own children in another way, and starts programs without a thought for that.
#[test]
fn the_end_of_the_command_is_noticed_also_where_its_signal_came_blocked() {
    let server = Server::start();
    let script = "exec env --block-signal=CHLD \"$FAIRLOCK\" exec k -- sh -c 'exit 3'";
    assert_eq!(program::in_shell(server.port, script).end().code, 3);
}

/// `top` has a screen of its own, and gives the terminal back.
#[test]
fn top_has_a_screen_until_it_is_told_to_end() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE orders ann SESSION");
    let top = "sh -c 'echo $$; exec \"$FAIRLOCK\" top --interval 50ms'";
    let line = format!("stty rows 24 cols 100; {top}; echo ended $?");
    for (by, code) in [("q", 0), ("TERM", 143)] {
        let mut program = program::in_terminal(server.port, &line);
        let [pid] = program.pids();
        program.wait_for("\u{1b}[?1049h");
        program.wait_for("orders");
        if by == "q" {
            program.type_in(by);
        } else {
            send_signal(pid, by);
        }
        let ended = program.end();
        assert!(ended.out.contains("\u{1b}[?1049l"), "{ended:?}");
        assert!(ended.out.contains(&format!("ended {code}")), "{ended:?}");
    }
    let once = program::in_terminal(server.port, "\"$FAIRLOCK\" top --once --interval 10ms");
    let out = once.end().out;
    let is_plain = out.starts_with("hand-offs=") && !out.contains('\u{1b}');
    assert!(is_plain, "{out}");
}

/// The terminal sends it to the whole group in the foreground, which one of the commands has left.
#[test]
fn control_c_is_left_to_the_terminal_and_other_signals_are_passed_on() {
    let server = Server::start();
    let script =
        "trap 'echo got-it' INT; trap 'echo told' USR1; echo ready; while :; do sleep 0.05; done";
    for (command, reached) in [("sh", 1), ("setsid sh", 0)] {
        let exec = "exec \"$FAIRLOCK\" exec k --";
        let line = format!("stty echo; echo $$; {exec} {command} -c \"{script}\"");
        let mut program = program::in_terminal(server.port, &line);
        let [pid] = program.pids();
        program.wait_for("ready");
        program.type_in("\u{3}");
        // Before it says so, the terminal drops what was printed and has not been read.
        program.wait_for("^C");
        send_signal(pid, "USR1");
        program.wait_for("told");
        send_signal(pid, "TERM");
        let ended = program.end();
        assert_eq!(ended.out.matches("got-it").count(), reached, "{ended:?}");
    }
}
