//! Key events: those of the plain commands, and the module's own.

use fairlock_testing::{Client, Server, wait_until};

/// The module's own events during some steps, without their prefix.
fn own_events(server: &Server, steps: impl FnOnce()) -> Vec<String> {
    let all = Client::events(server.port, steps);
    let names = all
        .iter()
        .map(|event| event.trim_start_matches("fairlock."));
    names.map(str::to_owned).collect()
}

fn announcing() -> Server {
    // The module's own events, and nothing else.
    Server::with(&["--notify-keyspace-events", "KEd", "--fairlock.turn", "50"])
}

#[test]
fn changes_are_announced_as_the_plain_commands_would() {
    let (server, mut client) = Server::connected_with(&["--notify-keyspace-events", "KEA"]);
    let events = Client::events(server.port, || {
        client.int("FAIRLOCK.ACQUIRE k a");
        client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
        client.int("FAIRLOCK.CANCEL k b");
        client.int("FAIRLOCK.RELEASE k a");
    });
    let expected = [
        "hset k",
        "expire k",
        "fairlock.acquire k",
        "zadd redisson_lock_timeout:{k}",
        "rpush redisson_lock_queue:{k}",
        "fairlock.enqueue k",
        "lpop redisson_lock_queue:{k}",
        "del redisson_lock_queue:{k}",
        "zrem redisson_lock_timeout:{k}",
        "del redisson_lock_timeout:{k}",
        "fairlock.cancel k",
        "del k",
        "fairlock.release k",
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_hand_off_is_announced_in_the_order_in_which_it_happens() {
    let (server, mut client) = Server::connected_with(&["--notify-keyspace-events", "KEA"]);
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    let events = Client::events(server.port, || {
        client.int("FAIRLOCK.RELEASE k a");
        waiter.int();
    });
    let expected = [
        "del k",
        "fairlock.release k",
        "hset k",
        "expire k",
        "lpop redisson_lock_queue:{k}",
        "del redisson_lock_queue:{k}",
        "zrem redisson_lock_timeout:{k}",
        "del redisson_lock_timeout:{k}",
        "fairlock.acquire k",
    ];
    assert_eq!(events, expected);
}

#[test]
fn every_step_has_its_own_event() {
    let server = announcing();
    let mut client = server.connect();
    let mut events = |steps: &str| {
        own_events(&server, || {
            for step in steps.split('\n') {
                client.run(step);
            }
        })
    };
    assert_eq!(events("FAIRLOCK.ACQUIRE k a"), ["acquire k"]);
    assert_eq!(events("FAIRLOCK.ACQUIRE k b ENQUEUE"), ["enqueue k"]);
    assert_eq!(events("FAIRLOCK.CANCEL k b"), ["cancel k"]);
    assert_eq!(events("FAIRLOCK.BREAK k"), ["release k"]);
    assert_eq!(
        events("FAIRLOCK.ACQUIRE k a ENQUEUE\nFAIRLOCK.RELEASE k a"),
        ["acquire k", "release k"]
    );
}

#[test]
fn what_did_not_happen_is_not_announced() {
    let server = announcing();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    let steps = [
        "FAIRLOCK.ACQUIRE k a",
        "FAIRLOCK.ACQUIRE k a ONCE",
        "FAIRLOCK.ACQUIRE k c NOWAIT",
        // Has its place already.
        "FAIRLOCK.ACQUIRE k b ENQUEUE",
        "FAIRLOCK.CANCEL k c",
        "FAIRLOCK.RELEASE k b",
        "FAIRLOCK.RELEASE k a TOKEN 1",
        // One hold remains.
        "FAIRLOCK.RELEASE k a",
        "FAIRLOCK.RENEW k a",
        "FAIRLOCK.RENEW k c",
        "FAIRLOCK.BREAK other",
        "FAIRLOCK.QUEUE k",
        "FAIRLOCK.HOLDERS k",
        "FAIRLOCK.INFO k",
        "FAIRLOCK.LOCKS",
        "FAIRLOCK.ACQUIRE k",
    ];
    let events = own_events(&server, || {
        for step in steps {
            client.run(step);
        }
    });
    assert_eq!(events, [""; 0]);
}

#[test]
fn a_dead_waiter_is_reaped_and_the_next_one_acquires() {
    let server = announcing();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("FAIRLOCK.ACQUIRE k dead ENQUEUE");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    let events = own_events(&server, || {
        client.int("FAIRLOCK.RELEASE k a");
        waiter.int();
    });
    assert_eq!(events, ["release k", "reap k", "acquire k"]);
}

#[test]
fn a_wait_that_ends_without_the_lock_is_a_cancel() {
    let server = announcing();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    let timed = own_events(&server, || {
        let waiter = server.block("FAIRLOCK.ACQUIRE k b WAIT 100");
        assert_eq!(waiter.reply(), "(nil)");
    });
    assert_eq!(timed, ["enqueue k", "cancel k"]);
    let closed = own_events(&server, || {
        server.block("FAIRLOCK.ACQUIRE k b").disconnect();
        wait_until("b has left", || client.run("FAIRLOCK.QUEUE k") == "[]");
    });
    assert_eq!(closed, ["enqueue k", "cancel k"]);
}

#[test]
fn a_session_that_ends_releases() {
    let server = announcing();
    let mut holder = server.connect();
    let mut client = server.connect();
    let events = own_events(&server, || {
        holder.int("FAIRLOCK.ACQUIRE k a SESSION");
        drop(holder);
        wait_until("the lock is free", || client.run("EXISTS k") == "0");
    });
    assert_eq!(events, ["acquire k", "release k"]);
}

#[test]
fn a_replica_announces_nothing_of_its_own() {
    let master = Server::start();
    let replica = announcing();
    let mut client = replica.connect();
    client.run(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    let events = own_events(&replica, || {
        master.connect().int("FAIRLOCK.ACQUIRE k a");
        wait_until("the lock is there", || client.run("EXISTS k") == "1");
        master.connect().int("FAIRLOCK.RELEASE k a");
        wait_until("the lock is free", || client.run("EXISTS k") == "0");
    });
    assert_eq!(events, [""; 0]);
}
