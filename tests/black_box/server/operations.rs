//! What operators do to a server: loading, shutting down, saving, running out of
//! memory.

use fairlock_testing::{Blocked, Listener, Server, wait_until};

use crate::scene::{AOF, QUEUE};

/// Waiters of a lock that is held, each blocked.
fn waiters(server: &Server, names: &[&str]) -> Vec<Blocked> {
    names
        .iter()
        .map(|name| server.block(&format!("FAIRLOCK.ACQUIRE k {name} LEASE 600000")))
        .collect()
}

#[test]
fn queues_that_were_there_before_the_module_are_found_by_it() {
    let server = Server::without_module(&["--enable-module-command", "yes"]);
    let path = Server::start().module_path();
    let mut client = server.connect();
    // One queue among many other keys, in another database.
    client.run("SELECT 3");
    for n in 0..5_000 {
        client.run(&format!("SET other{n} x"));
    }
    client.run("HSET {k}x a 1");
    client.run("PEXPIRE {k}x 600000");
    client.run("RPUSH redisson_lock_queue:{k}x dead p");
    client.run("ZADD redisson_lock_timeout:{k}x 99999999999999 dead 99999999999999 p");
    let wake_ups = Listener::new(server.port, "redisson_lock__channel:{k}x:p");
    client.assert_reply(&format!("MODULE LOAD {path} turn 50"), "OK");
    // No command of this module has touched the lock; it knows the lock all the same.
    wait_until("it is known", || {
        server.count("locks_with_waiters_or_session") == 1
    });
    client.run("DEL {k}x");
    assert_eq!(wake_ups.message(), "0");
    wait_until("both are dropped", || {
        client.run("LLEN redisson_lock_queue:{k}x") == "0"
    });
}

#[test]
fn a_server_that_shuts_down_lets_everyone_go() {
    for how in ["NOSAVE", "SAVE", "TERM"] {
        let mut server = Server::start();
        let mut client = server.connect();
        let mut session = server.connect();
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        session.int("FAIRLOCK.ACQUIRE s a SESSION LEASE 600000");
        client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
        let queue = waiters(&server, &["b", "c"]);
        if how == "TERM" {
            server.signal("TERM");
        } else {
            client.run(&format!("SHUTDOWN {how}"));
        }
        assert_eq!(server.exit_code(), Some(0), "{how}");
        for waiter in queue {
            let reply = waiter.reply();
            assert!(reply.starts_with("(error) not a reply"), "{how}: {reply}");
        }
        assert!(!server.log().contains("CRASHED"), "{}", server.log());
    }
}

#[test]
fn a_loaded_queue_is_served_without_a_request() {
    for disk in [&[], AOF] {
        let (server, mut client) =
            Server::connected_with(&[&["--fairlock.turn", "50"], disk].concat());
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        client.run("FAIRLOCK.ACQUIRE k p ENQUEUE PATIENCE 600000");
        // One that is named after its connection is gone with it.
        client.run("FAIRLOCK.ACQUIRE k * ENQUEUE PATIENCE 600000");
        client.run("FAIRLOCK.RENEW k a LEASE 1500");
        if disk.is_empty() {
            client.assert_reply("SAVE", "OK");
        }
        drop(client);
        let server = server.kill_and_restart();
        let mut client = server.connect();
        // The lease ends, and each of the two is woken and dropped when its turn is over.
        wait_until("both have had their turns", || {
            client.run("EXISTS redisson_lock_queue:{k}") == "0"
        });
        assert!(client.int("FAIRLOCK.ACQUIRE k b") > 0);
    }
}

#[test]
fn a_full_server_refuses_to_lock_and_does_everything_that_frees() {
    let (server, mut client) = Server::connected_with(&["--maxmemory-policy", "noeviction"]);
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let mut queue = waiters(&server, &["b", "c", "d", "e"]);
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
    client.int("FAIRLOCK.ACQUIRE shared r SHARED LEASE 600000");
    client.run("CONFIG SET maxmemory 1");
    client.assert_error("FAIRLOCK.ACQUIRE shared s SHARED", "OOM");
    client.assert_reply("FAIRLOCK.RELEASE shared r", "0");
    for option in ["", " NOWAIT", " ENQUEUE", " WAIT 5"] {
        // The holder, a waiter and a newcomer alike.
        for owner in ["a", "p", "z"] {
            client.assert_error(&format!("FAIRLOCK.ACQUIRE k {owner}{option}"), "OOM");
        }
    }
    assert_eq!(client.run(QUEUE), "[b, c, d, e, p]");
    client.assert_reply("FAIRLOCK.RENEW k a LEASE 500000", "500000");
    client.assert_reply("FAIRLOCK.CANCEL k p", "1");
    client.assert_reply("FAIRLOCK.CANCEL k d", "1");
    assert_eq!(queue.remove(2).reply(), "(nil)");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    let second = queue.remove(0).int();
    assert!(second > token);
    client.assert_reply("FAIRLOCK.BREAK k", "1");
    let third = queue.remove(0).int();
    assert!(third > second);
    client.run("PEXPIRE k 1");
    assert!(queue.remove(0).int() > third);
    client.assert_reply("FAIRLOCK.QUEUE k", "[]");
    client.assert_start("FAIRLOCK.INFO k", "[owner, e, holds, 1, ");
}
