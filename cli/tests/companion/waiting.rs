//! What `fairlock exec` bears while it waits, and what it says.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use fairlock_testing::{Server, wait_until};
use tempfile::TempDir;

use crate::program::{Program, is_alive, pid_in};

#[test]
fn it_says_who_holds_the_lock_and_its_place() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k bob ENQUEUE PATIENCE 600000");
    let program = Program::start(server.port, &["exec", "k", "--", "true"]);
    program.wait_for_error("waiting for the lock k: ann holds it, place 2 of 2\n");
    client.run("FAIRLOCK.CANCEL k bob");
    client.int("FAIRLOCK.RELEASE k ann");
    let ended = program.end();
    assert_eq!(
        (ended.code, ended.errors.lines().count()),
        (0, 1),
        "{ended:?}"
    );
}

/// Keeps the server busy with a script while something happens.
fn while_busy(server: &Server, happens: impl FnOnce()) {
    let (mut script, mut client) = (server.connect(), server.connect());
    client.run("CONFIG SET lua-time-limit 1");
    let running = thread::spawn(move || script.raw(&[b"EVAL", b"while true do end", b"0"]));
    wait_until("it is busy", || client.run("PING").contains("BUSY"));
    happens();
    client.run("SCRIPT KILL");
    let reply = running.join().expect("no panic");
    assert!(reply.is_err(), "{reply:?}");
}

#[test]
fn a_busy_server_is_asked_again() {
    let server = Server::start();
    let mut program = None;
    while_busy(&server, || {
        let started = Program::start(server.port, &["exec", "k", "--", "true"]);
        started.wait_for_error("BUSY");
        program = Some(started);
    });
    let ended = program.expect("started").end();
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn a_lock_is_given_back_when_the_server_is_not_busy_any_more() {
    let server = Server::start();
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("pid");
    let script = format!("echo $$ > {}; read line", file.display());
    let mut program = Program::start(server.port, &["exec", "k", "--", "sh", "-c", &script]);
    let command = pid_in(&file);
    while_busy(&server, || {
        program.type_in("\n");
        wait_until("the command has ended", || !is_alive(command));
        program.wait_for_error("BUSY");
    });
    let ended = program.end();
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn a_server_with_all_the_clients_it_takes_is_asked_again() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("CONFIG SET maxclients 1");
    let program = Program::start(server.port, &["exec", "k", "--", "true"]);
    program.wait_for_error("Asking again");
    client.run("CONFIG SET maxclients 1000");
    let ended = program.end();
    assert_eq!(ended.code, 0, "{ended:?}");
}

/// A proxy that can lose the server's side of its connections without telling the clients.
struct Proxy {
    port: u16,
    to_server: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let to_server = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&to_server);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let there = TcpStream::connect(("127.0.0.1", server)).expect("the server");
                all.lock()
                    .expect("no panic")
                    .push(there.try_clone().expect("a copy"));
                let (client_too, there_too) = (
                    client.try_clone().expect("a copy"),
                    there.try_clone().expect("a copy"),
                );
                thread::spawn(move || io::copy(&mut &client, &mut &there));
                thread::spawn(move || io::copy(&mut &there_too, &mut &client_too));
            }
        });
        Self { port, to_server }
    }

    fn lose(&self) {
        for connection in self.to_server.lock().expect("no panic").drain(..) {
            // It may have ended.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_connection_that_is_dead_on_the_servers_side_only_is_noticed() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k bob ENQUEUE PATIENCE 600000");
    let proxy = Proxy::start(server.port);
    let program = Program::start(proxy.port, &["exec", "k", "--", "true"]);
    wait_until("it waits", || server.blocked() == 1);
    proxy.lose();
    wait_until("its place is lost", || server.blocked() == 0);
    program.wait_for_error("is dead. Asking again");
    wait_until("it waits again", || server.blocked() == 1);
    client.run("FAIRLOCK.CANCEL k bob");
    client.int("FAIRLOCK.RELEASE k ann");
    assert_eq!(program.end().code, 0);
}
