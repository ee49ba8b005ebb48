//! No waiter loses its place while the server stands still or its writes are paused: none could ask.
//!
//! Each stall is longer than a turn or a patience, and each waiter asks while it lasts.

use std::thread::sleep;
use std::time::Duration;

use fairlock_testing::{Blocked, Client, Server, Wire, wait_until};

use crate::scene::QUEUE;

const TURN: &str = "3000";
/// Longer than a turn.
const STALL: Duration = Duration::from_secs(4);

const RELEASE_AND_ASK: &str = "FAIRLOCK.RELEASE k a\nFAIRLOCK.ACQUIRE k p ENQUEUE";

fn server() -> Server {
    Server::with(&["--fairlock.turn", TURN, "--enable-debug-command", "yes"])
}

/// `a` holds; `p` and `q` wait and do not block.
fn two_behind_a_holder(server: &Server, patience: u64) -> Client {
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    for owner in ["p", "q"] {
        client.run(&format!(
            "FAIRLOCK.ACQUIRE k {owner} ENQUEUE PATIENCE {patience}"
        ));
    }
    client
}

fn ask(client: Client, owner: &str) -> Blocked {
    Blocked::send_on(client, &format!("FAIRLOCK.ACQUIRE k {owner} ENQUEUE"))
}

#[test]
fn a_turn_counts_from_when_the_wake_up_has_left() {
    let server = server();
    let mut client = two_behind_a_holder(&server, 600_000);
    let mut wire = server.wire("FAIRLOCK.RELEASE k a\nDEBUG SLEEP 4");
    // All replies and messages have been written when the first reply is here.
    assert_eq!(wire.line(), ":0");
    client.assert_reply("LINDEX redisson_lock_queue:{k} 0", "p");
    assert!(client.int("FAIRLOCK.ACQUIRE k p ENQUEUE") > 0);
}

/// The process is stopped, or its writes or all commands are paused.
const STALLS: [&str; 3] = ["STOP", "WRITE", "ALL"];

#[test]
fn a_woken_waiter_that_asks_in_a_stall_gets_the_lock() {
    for stall in STALLS {
        let server = server();
        let mut client = two_behind_a_holder(&server, 600_000);
        let asked = if stall == "STOP" {
            client.int("FAIRLOCK.RELEASE k a");
            server.while_stopped(|| {
                sleep(STALL);
                ask(client, "p")
            })
        } else {
            client.at_once(&[
                "FAIRLOCK.RELEASE k a",
                &format!("CLIENT PAUSE 4000 {stall}"),
            ]);
            ask(client, "p")
        };
        assert!(asked.int() > 0, "{stall}");
    }
}

#[test]
fn patience_does_not_run_out_in_a_stall() {
    for stall in STALLS {
        let server = server();
        let mut client = two_behind_a_holder(&server, 3000);
        let mut wire = Wire::new(server.port);
        // The waiter's request is still to be read when the lock is free.
        if stall == "STOP" {
            server.while_stopped(|| {
                sleep(STALL);
                wire.send(RELEASE_AND_ASK);
            });
        } else {
            client.run(&format!("CLIENT PAUSE 4000 {stall}"));
            wire.send(RELEASE_AND_ASK);
        }
        assert_eq!(wire.line(), ":0", "{stall}");
        assert!(wire.token() > 0, "{stall}");
        client.assert_reply(QUEUE, "[q]");
    }
}

#[test]
fn a_waiter_of_which_only_the_score_is_known_outlives_a_stall() {
    let server = server();
    let mut client = server.connect();
    let stalls: [fn(&Server); 3] = [
        // Such waiters are spared anyway when a server has just started, until the turn is over that one loses here.
        |_| (),
        |server| server.while_stopped(|| sleep(STALL)),
        |server| _ = server.connect().run("DEBUG SLEEP 4"),
    ];
    for (lock, stall) in ["k", "l", "m"].into_iter().zip(stalls) {
        let queue = format!("redisson_lock_queue:{{{lock}}}");
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} a LEASE 600000"));
        client.run(&format!("RPUSH {queue} f"));
        let score = client.now() + 3000;
        client.run(&format!("ZADD redisson_lock_timeout:{{{lock}}} {score} f"));
        let waiter = server.block(&format!("FAIRLOCK.ACQUIRE {lock} b"));
        stall(&server);
        client.int(&format!("FAIRLOCK.RELEASE {lock} a"));
        client.assert_reply(&format!("LINDEX {queue} 0"), "f");
        // It does not come, and loses its turn as any other.
        assert!(waiter.int() > 0);
    }
}

#[test]
fn a_wait_that_ended_unheard_is_over_unless_a_release_came_in_time() {
    let server = server();
    let mut client = server.connect();
    let [in_time, over] = ["k", "l"].map(|lock| {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} a LEASE 600000"));
        server.block(&format!("FAIRLOCK.ACQUIRE {lock} b WAIT 3000"))
    });
    let released = server.while_stopped(|| {
        let released = Blocked::send_on(client, "FAIRLOCK.RELEASE k a");
        sleep(STALL);
        released
    });
    assert_eq!(released.reply(), "0");
    assert!(in_time.int() > 0);
    assert_eq!(over.reply(), "(nil)");
    assert_eq!(server.connect().run("FAIRLOCK.QUEUE l"), "[]");
}

#[test]
fn after_a_stall_sessions_are_renewed_before_requests_are_read() {
    let server = server();
    let mut client = server.connect();
    let token = client.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 9000");
    let mut other = server.connect();
    let before = other.int("PEXPIRETIME k");
    let left = server.while_stopped(|| {
        // A third of the lease has passed: a renewal is due.
        sleep(Duration::from_millis(3500));
        Blocked::send_on(other, "PEXPIRETIME k")
    });
    assert!(left.int() > before);
    wait_until("it is held on", || client.token("k") == token);
}
