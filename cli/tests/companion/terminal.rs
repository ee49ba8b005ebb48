//! With a terminal.

use fairlock_testing::{Server, send_signal};

use crate::program::{Program, is_alive};

/// `top` has a screen of its own, and gives the terminal back.
#[test]
fn top_has_a_screen_until_it_is_told_to_end() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE orders ann SESSION");
    let top = "sh -c 'echo $$; exec \"$FAIRLOCK\" top --interval 50ms'";
    let line = format!("stty rows 24 cols 100; {top}; echo ended $?");
    for (by, code) in [("q", 0), ("TERM", 143)] {
        let mut program = Program::in_terminal(server.port, &line);
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
    let once = Program::in_terminal(server.port, "\"$FAIRLOCK\" top --once --interval 10ms");
    let out = once.end().out;
    assert!(
        out.starts_with("hand-offs=") && !out.contains('\u{1b}'),
        "{out}"
    );
}

#[test]
fn what_the_command_has_started_ends_with_it_in_a_terminal_that_stays() {
    let server = Server::start();
    let line =
        "\"$FAIRLOCK\" exec k -- sh -c 'sleep 300 & echo $!; wait; true'; echo ended $?; read x";
    let mut program = Program::in_terminal(server.port, line);
    let [started] = program.pids();
    assert_eq!(server.connect().run("FAIRLOCK.BREAK k"), "1");
    program.wait_for("ended 76");
    assert!(!is_alive(started));
    program.type_in("\n");
    assert_eq!(program.end().code, 0);
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
        let mut program = Program::in_terminal(server.port, &line);
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
