//! Redisson's other locks on names that FAIRLOCK clients use: see docs/migrating-from-redisson.md for each.

use fairlock_testing::redisson::{Driver, NEWEST};
use fairlock_testing::{Listener, Server, wait_until};

use crate::interception::Interception;

/// Where plain locks and all made like them listen, and publish when they are unlocked. Redisson's fair lock does not.
const CHANNEL: &str = "redisson_lock__channel:{k}";

fn one(server: &Server) -> Driver {
    let [driver] = Driver::several([NEWEST], server, &[]);
    driver
}

/// It goes on waiting until a message is published on its channel.
#[test]
fn releasing_wakes_no_plain_lock() {
    let (server, mut client) = Server::connected();
    let driver = one(&server);
    let listener = Listener::new(server.port, CHANNEL);
    client.int("FAIRLOCK.ACQUIRE k me LEASE 600000");
    // A script of a plain lock calls it when it replies that the lock is held.
    let refusals = || server.command_stat("pttl", "calls");
    let before = refusals();
    let waiter = driver.send("waiter", "lock plain:k");
    // It asks, listens, and asks once more before it waits.
    wait_until("it waits", || refusals() >= before + 2);
    client.assert_reply("FAIRLOCK.RELEASE k me", "0");
    // Earlier messages would have come before these answers.
    for _ in 0..20 {
        assert_eq!(driver.run("other", "isLocked k"), "false");
    }
    assert!(listener.is_quiet(), "it was published");
    assert_eq!(waiter.poll(), None, "it was woken");
    client.assert_reply(&format!("PUBLISH {CHANNEL} 0"), "2");
    assert_eq!(waiter.get(), "true");
    assert_eq!(listener.message(), "0");
    assert_eq!(driver.run("waiter", "unlock plain:k"), "done");
    // That is what plain locks do for each other.
    assert_eq!(listener.message(), "0");
}

#[test]
fn a_plain_lock_knows_no_queue_and_overtakes_it() {
    let server = Server::with(&["--fairlock.turn", "600000"]);
    let driver = one(&server);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k holder LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k first ENQUEUE");
    client.run("FAIRLOCK.RELEASE k holder");
    // It is the turn of the first. A fair lock of Redisson waits for it, a plain one does not.
    assert_eq!(driver.run("fair", "tryLock k"), "false");
    assert_eq!(driver.run("plain", "tryLock plain:k"), "true");
    client.assert_start("FAIRLOCK.ACQUIRE k first ENQUEUE", "[1, ");
}

#[test]
fn plain_spin_and_fenced_locks_exclude_each_other_with_fairlock_clients() {
    let server = Server::start();
    let driver = one(&server);
    let mut client = server.connect();
    for kind in ["plain", "spin", "fenced"] {
        let lock = |operation: &str| driver.run("other", &format!("{operation} {kind}:k"));
        assert_eq!(lock("tryLock"), "true", "{kind}");
        client.assert_reply("FAIRLOCK.ACQUIRE k me NOWAIT", "(nil)");
        let waiter = server.block("FAIRLOCK.ACQUIRE k me LEASE 600000");
        assert_eq!(lock("unlock"), "done", "{kind}");
        assert!(waiter.int() > 0, "{kind}");
        assert_eq!(lock("tryLock"), "false", "{kind}");
        client.assert_reply("FAIRLOCK.RELEASE k me", "0");
    }
    // The token of a fenced lock is another number, unrelated to this module's.
    client.assert_has("KEYS *token*", "redisson_lock_token");
}

#[test]
fn a_read_write_lock_is_no_lock_for_fairlock_and_walks_into_one() {
    let server = Server::start();
    let driver = one(&server);
    let mut client = server.connect();
    for kind in ["read", "write"] {
        let lock = |operation: &str| driver.run("other", &format!("{operation} {kind}:k"));
        assert_eq!(lock("tryLock"), "true");
        client.assert_error("FAIRLOCK.ACQUIRE k me NOWAIT", "NOTALOCK");
        assert_eq!(lock("unlock"), "done");
        // The other way round its script looks for a field that no other lock has, and takes what is held.
        assert!(client.int("FAIRLOCK.ACQUIRE k me LEASE 600000") > 0);
        assert_eq!(lock("tryLock"), "true", "{kind}");
        client.run("DEL k");
    }
}

#[test]
fn a_multi_lock_of_fair_locks_is_made_of_fair_locks() {
    let server = Server::start();
    let driver = one(&server);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE l me LEASE 600000");
    assert_eq!(driver.run("both", "multiLock k l 500 600000"), "false");
    // It gave up the one that it had.
    assert_eq!(client.run("FAIRLOCK.ACQUIRE k other NOWAIT ONCE").len(), 16);
    client.run("FAIRLOCK.RELEASE k other");
    client.run("FAIRLOCK.RELEASE l me");
    assert_eq!(driver.run("both", "multiLock k l 60000 600000"), "true");
    client.assert_reply("FAIRLOCK.ACQUIRE k other NOWAIT", "(nil)");
    client.assert_reply("FAIRLOCK.ACQUIRE l other NOWAIT", "(nil)");
}

/// A hold of Redisson's adds up with each `lock()` of the same thread, however it is counted; ONCE does not.
#[test]
fn holds_add_up_over_scripts_and_commands() {
    Interception::each(|interception| {
        let server = interception.server(&[]);
        let driver = one(&server);
        let mut client = server.connect();
        let owner = driver.run("thread", "owner k");
        assert_eq!(driver.run("thread", "lock k 600000"), "true");
        assert_eq!(driver.run("thread", "lock k 600000"), "true");
        assert_eq!(driver.run("thread", "holdCount k"), "2");
        client.run(&format!("FAIRLOCK.ACQUIRE k {owner} LEASE 600000"));
        assert_eq!(driver.run("thread", "holdCount k"), "3");
        client.run(&format!("FAIRLOCK.ACQUIRE k {owner} LEASE 600000 ONCE"));
        assert_eq!(driver.run("thread", "holdCount k"), "3");
        assert_eq!(driver.run("thread", "unlock k"), "done");
        client.assert_reply(&format!("FAIRLOCK.RELEASE k {owner}"), "1");
        assert_eq!(driver.run("thread", "unlock k"), "done");
        client.assert_reply("EXISTS k", "0");
    });
}
