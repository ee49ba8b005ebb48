//! Signals that `fairlock exec` gets.

use fairlock_testing::{Server, wait_until};

use crate::program::Program;

#[test]
fn they_are_passed_on_to_the_command() {
    let server = Server::start();
    for signal in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"] {
        let script = format!(
            "trap 'echo {signal}; exit 5' {signal}; echo ready; while :; do sleep 0.05; done"
        );
        let program = Program::script(server.port, &[], &script);
        program.wait_for("ready\n");
        program.signal(signal);
        let ended = program.end();
        assert_eq!((ended.code, ended.out), (5, format!("ready\n{signal}\n")));
    }
    assert_eq!(server.connect().run("EXISTS k"), "0");
}

#[test]
fn during_the_wait_they_end_it_and_the_place_is_given_up() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    // A code of its own, not the signal's: as PID 1 the kernel would ignore a signal that nobody listens to.
    for (signal, code) in [("HUP", 129), ("INT", 130), ("TERM", 143)] {
        let program = Program::waiting(&server, &[]);
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
    let script = "trap '' HUP; exec \"$FAIRLOCK\" exec k -- sh -c 'grep SigIgn /proc/self/status; read line'";
    let mut program = Program::in_shell(server.port, script);
    program.wait_for("SigIgn:");
    program.signal("HUP");
    program.type_in("\n");
    let out = program.end().said();
    let mask = out.trim().rsplit('\t').next().expect("a mask");
    let mask = u64::from_str_radix(mask, 16).expect("a number");
    assert_eq!(mask & 1, 1, "{mask:x}");
}
