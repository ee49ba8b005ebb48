//! With a terminal.

use fairlock_testing::{Server, wait_until};

use crate::program::{Program, is_alive, send_signal};

/// `top` has a screen of its own, and gives the terminal back.
#[test]
fn top_has_a_screen_until_it_is_told_to_end() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE orders ann SESSION");
    client.int("FAIRLOCK.ACQUIRE stock bob SESSION");
    let top = "sh -c 'echo $$; exec \"$FAIRLOCK\" top --interval 50ms'";
    let line = format!("stty rows 24 cols 100; {top}; echo ended $?");
    for (by, code) in [("q", 0), ("TERM", 143)] {
        let mut program = Program::in_terminal(server.port, &line);
        let [pid] = program.pids();
        for text in ["\u{1b}[?1049h", "orders", "stock"] {
            program.wait_for(text);
        }
        if by == "q" {
            program.type_in(by);
        } else {
            send_signal(pid, by);
        }
        let ended = program.end();
        assert!(ended.out.contains("\u{1b}[?1049l"), "{ended:?}");
        assert!(ended.out.contains(&format!("ended {code}")), "{ended:?}");
    }
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

#[test]
fn control_c_reaches_the_command_once() {
    let server = Server::start();
    let script = "trap \"echo got-it\" INT; echo re\"\"ady; while :; do sleep 0.05; done";
    let line = format!("\"$FAIRLOCK\" exec k -- sh -c '{script}'");
    let mut program = Program::in_terminal(server.port, &line);
    program.wait_for("ready");
    program.type_in("\u{3}");
    program.wait_for("got-it");
    // All else that was sent is there when the second one is.
    program.type_in("\u{3}");
    wait_until("the second", || {
        program.out().matches("got-it").count() >= 2
    });
    program.type_in("\u{1c}");
    let ended = program.end();
    assert_eq!(ended.out.matches("got-it").count(), 2, "{ended:?}");
}
