//! What `fairlock exec` bears while it waits, and what it says.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;

use fairlock_testing::{Blocked, Server, wait_until};

use crate::program;

/// As where what it prints goes to `head`, and its errors to `grep -m1`.
#[test]
fn a_reader_that_has_enough_ends_a_question_but_no_wait_and_no_command() {
    let (server, mut client) = Server::connected();
    for command in ["top --interval 1ms", "locks", "info k"] {
        // Its end may be closed before anything is printed.
        let line = format!("(\"$FAIRLOCK\" {command}; echo $? >&2) | true");
        let ended = program::in_shell(server.port, &line).end();
        assert_eq!((ended.code, ended.errors.as_str()), (0, "0\n"), "{ended:?}");
    }
    client.int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    let exec = "\"$FAIRLOCK\" exec k -- sh -c 'echo started; exec sleep 100'";
    let script = format!("exec 3>&1; ({exec} >&3; echo $? >&3) 2>&1 | true");
    let program = program::in_shell(server.port, &script);
    let looked = || server.command_stat("fairlock.queue", "calls") > 0;
    wait_until("it looks at the queue", looked);
    client.int("FAIRLOCK.RELEASE k ann");
    program.wait_for("\n");
    client.run("FAIRLOCK.BREAK k");
    assert_eq!(program.end().said(), "started\n76\n");
}

/// Busy with a script of somebody else's, or with as many clients as it takes.
#[test]
fn a_busy_server_is_asked_again_for_the_lock_and_to_take_it_back() {
    let (server, mut client) = Server::connected();
    let patient = "--reconnect 10m --lease 10m";
    let mut first = program::script(server.port, patient, "echo ready; read line");
    first.wait_for("ready\n");
    client.run("CONFIG SET lua-time-limit 1");
    let endless = Blocked::send(server.port, "EVAL repeat\nuntil(false) 0");
    wait_until("it is busy", || client.run("PING").contains("BUSY"));
    first.type_in("\n");
    first.wait_for_error("cannot give back the lock k yet: the server");
    let second = program::script(server.port, patient, "exit 3");
    second.wait_for_error("BUSY");
    client.run("SCRIPT KILL");
    assert!(endless.reply().starts_with("(error)"));
    assert_eq!(first.end().code, 0);
    assert_eq!(second.end().code, 3);
    assert_eq!(client.run("EXISTS k"), "0");
    client.run("CONFIG SET maxclients 1");
    let third = program::script(server.port, "", "exit 3");
    third.wait_for_error("Asking again");
    client.run("CONFIG SET maxclients 1000");
    assert_eq!(third.end().code, 3);
}

/// The port of a proxy for a server, which does not tell its clients when the server closes their connections.
fn proxy(server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let there = TcpStream::connect(("127.0.0.1", server)).expect("the server");
            let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
            let (mut from_client, mut to_server) = (copy(&client), copy(&there));
            thread::spawn(move || io::copy(&mut from_client, &mut to_server));
            thread::spawn(move || io::copy(&mut &there, &mut &client));
        }
    });
    port
}

#[test]
fn it_says_who_is_before_it_and_a_wait_that_is_cut_short_goes_on_until_there_is_no_server() {
    let (mut server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k bob ENQUEUE PATIENCE 600000");
    let program = program::script(proxy(server.port), "", "exit 3");
    program.wait_for_error("\n");
    let said = "fairlock: waiting for the lock k: ann holds it, place 2 of 2\n";
    assert_eq!(program.printed("errors"), said);
    let direct = program::script(server.port, "--wait 10m", "exit 3");
    wait_until("both wait", || server.blocked() == 2);
    client.run("CLIENT KILL TYPE normal SKIPME yes");
    direct.wait_for_error("was cut short");
    program.wait_for_error("is dead. Asking again");
    wait_until("both wait again", || server.blocked() == 2);
    // As a server does that becomes a replica.
    let list = client.run("CLIENT LIST");
    let mut list = list.split("\\n");
    let waits = list.find(|line| line.contains(" flags=b ")).expect("one");
    let id = waits.split([' ', '=']).nth(1).expect("an id");
    assert_eq!(client.run(&format!("CLIENT UNBLOCK {id} ERROR")), "1");
    client.run("FAIRLOCK.CANCEL k bob");
    client.int("FAIRLOCK.RELEASE k ann");
    assert_eq!([program.end().code, direct.end().code], [3, 3]);
    client.int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    let program = program::waiting(&server, "--reconnect 300ms");
    server.signal("KILL");
    server.exit_code();
    program.end().failed(69, "cannot reach the server");
}
