//! Another module calls FAIRLOCK commands: at any time as a client that cannot block, and from a key
//! event of a FAIRLOCK command not at all.

use fairlock_testing::commands::{COMMANDS, Command, SCRIPTS, on};
use fairlock_testing::native::library;
use fairlock_testing::{Blocked, Client, Server, wait_until};
use tempfile::TempDir;

use crate::commands::transactions::uses_a_lock;

const REFUSED: &str = "-ERR FAIRLOCK commands cannot be called from a key event";

/// A server with both modules; `first`: the other one is loaded before fairlock, and so is told of
/// events before it.
fn start(first: bool) -> (Server, TempDir) {
    let dir = TempDir::new().expect("a directory");
    let nosy = library("tests/black_box/foreign/nosy_module.c", dir.path());
    let option = ["--loadmodule", nosy.to_str().expect("UTF-8")];
    let server = if first {
        let own = Server::start().module_path();
        let [flag, nosy] = option;
        Server::without_module(&[flag, nosy, flag, &own])
    } else {
        Server::with(&option)
    };
    (server, dir)
}

#[test]
fn a_module_that_is_loaded_later_is_told_of_events_from_then_on() {
    let dir = TempDir::new().expect("a directory");
    let nosy = library("tests/black_box/foreign/nosy_module.c", dir.path());
    let (_server, mut client) = Server::connected_with(&["--enable-module-command", "yes"]);
    client.int("FAIRLOCK.ACQUIRE k a");
    client.assert_reply(&format!("MODULE LOAD {}", nosy.display()), "OK");
    for (event, command) in [
        ("expire", "FAIRLOCK.RENEW k a LEASE 600000"),
        ("del", "FAIRLOCK.RELEASE k a"),
        ("hset", "FAIRLOCK.ACQUIRE k a"),
        ("fairlock.release", "FAIRLOCK.RELEASE k a"),
    ] {
        client.run(&format!("NOSY.ON {event} FAIRLOCK.QUEUE k"));
        client.int(command);
        let said = said(&mut client);
        assert!(said.starts_with(REFUSED), "{event}: {said}");
    }
}

/// The reply to each call from the event.
fn said(client: &mut Client) -> String {
    client.run("NOSY.SAID")
}

#[test]
fn a_call_from_a_key_event_of_a_step_is_refused_and_the_step_goes_on() {
    for first in [false, true] {
        let (server, _dir) = start(first);
        let mut client = server.connect();
        client.int("FAIRLOCK.ACQUIRE k a");
        let waiters = ["b", "c"].map(|owner| server.block(&format!("FAIRLOCK.ACQUIRE k {owner}")));
        let mut holder = "a";
        for (event, command) in [
            ("lpop", "FAIRLOCK.ACQUIRE k x ENQUEUE"),
            ("fairlock.acquire", "FAIRLOCK.QUEUE k"),
        ] {
            client.assert_reply(&format!("NOSY.ON {event} {command}"), "OK");
            client.assert_reply(&format!("FAIRLOCK.RELEASE k {holder}"), "0");
            let said = said(&mut client);
            assert!(said.starts_with(REFUSED), "{event} {command}: {said}");
            assert_eq!(said.matches("-ERR").count(), 1, "{said}");
            holder = if holder == "a" { "b" } else { "c" };
            assert_eq!(client.holders("k"), format!("[{holder}, 1]"));
        }
        client.assert_reply("FAIRLOCK.RELEASE k c", "0");
        let tokens = waiters.map(Blocked::int);
        assert!(tokens[0] < tokens[1]);
        client.assert_reply("KEYS *", "[]");
    }
}

#[test]
fn every_command_that_looks_at_locks_is_refused_there() {
    let (server, _dir) = start(false);
    let mut client = server.connect();
    client.run("CONFIG SET fairlock.intercept-eval yes");
    // HELP looks at no lock, and is tried below. EVAL differs from EVALSHA in how it finds the script.
    let commands = COMMANDS.iter().filter(|command| command.name != "HELP");
    let calls = commands.flat_map(Command::calls);
    let calls = calls.chain([SCRIPTS[1].to_owned(), "ACQUIRE other x".to_owned()]);
    for command in calls.map(|call| on(&call, "k")) {
        client.run(&format!("NOSY.ON hset {command}"));
        client.int("FAIRLOCK.ACQUIRE k a");
        let said = said(&mut client);
        assert!(said.starts_with(REFUSED), "{command}: {said}");
        client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    }
    client.run("NOSY.ON hset FAIRLOCK.HELP");
    client.int("FAIRLOCK.ACQUIRE k a");
    assert!(said(&mut client).starts_with('*'));
    client.assert_reply("EXISTS other", "0");
}

#[test]
fn a_key_that_another_module_deletes_from_an_event_is_noticed() {
    for first in [false, true] {
        let (server, _dir) = start(first);
        let mut client = server.connect();
        client.int("FAIRLOCK.ACQUIRE k a");
        let waiter = server.block("FAIRLOCK.ACQUIRE k b");
        // The step has closed its keys by then.
        client.run("NOSY.ON expire DEL k");
        client.assert_reply("FAIRLOCK.RENEW k a LEASE 600000", "600000");
        assert!(waiter.int() > 0);
        assert_eq!(client.holders("k"), "[b, 1]");
        // The same while a queue is at work.
        client.run("NOSY.ON rpush DEL redisson_lock_queue:{k}");
        let waiter = server.block("FAIRLOCK.ACQUIRE k c");
        wait_until("the waiter is back in its place", || {
            client.run("LRANGE redisson_lock_queue:{k} 0 -1") == "[c]"
        });
        client.assert_reply("FAIRLOCK.RELEASE k b", "0");
        assert!(waiter.int() > 0);
    }
}

#[test]
fn events_of_others_are_a_time_as_any_other() {
    let (server, _dir) = start(false);
    let mut client = server.connect();
    client.run("NOSY.ON set FAIRLOCK.ACQUIRE k nosy");
    client.run("SET other x");
    assert!(said(&mut client).starts_with(':'));
    assert_eq!(client.holders("k"), "[nosy, 1]");
    client.run("NOSY.ON set FAIRLOCK.ACQUIRE k b");
    client.run("SET other x");
    // It could not wait there.
    assert!(["$-1\\r\\n", "$-1\n", "_\n"].contains(&&*said(&mut client)));
    client.run("NOSY.ON set FAIRLOCK.RELEASE k nosy");
    let script: &[u8] = b"redis.call('SET', 'other', 'y')";
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    client.raw(&[b"EVAL", script, b"0"]).expect("it runs");
    assert!(said(&mut client).starts_with(":0"));
    assert!(waiter.int() > 0);
}

#[test]
fn another_module_uses_locks_as_a_client_that_cannot_block() {
    let (server, _dir) = start(false);
    let mut client = server.connect();
    client.run("CONFIG SET fairlock.intercept-eval no");
    let mut call = |command: &str| client.run(&format!("NOSY.CALL {command}"));
    uses_a_lock("by another module", &mut call);
    // It has no user whose permissions a script that is left to Lua would need.
    let reply = call(&on(SCRIPTS[1], "k"));
    assert!(reply.starts_with("(error) NOSCRIPT "), "{reply}");
    client.assert_reply("KEYS *", "[]");
}
