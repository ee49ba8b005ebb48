//! I/O threads read requests and write replies while the server goes on: a hand-off whose receiver goes at that time is
//! neither lost nor given twice, and requests that came in time count as in time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fairlock_testing::{Blocked, Client, Server, Wire, wait_until};

fn server() -> Server {
    let (server, mut client) =
        Server::connected_with(&["--io-threads", "4", "--enable-debug-command", "yes"]);
    // Valkey lets its threads rest while there is little to do; others do not know these options.
    client.run("CONFIG SET events-per-io-thread 0");
    client.run("CONFIG SET io-threads-always-active yes");
    server
}

/// `a` holds the lock; `b` waits on a bare connection, and `c` behind it.
fn two_waiters(server: &Server, client: &mut Client, lock: &str) -> (Wire, Blocked) {
    client.int(&format!("FAIRLOCK.ACQUIRE {lock} a LEASE 600000"));
    let first = server.wire(&format!("PING\nFAIRLOCK.ACQUIRE {lock} b LEASE 600000"));
    let list = format!("CLIENT LIST ID {}", first.id);
    wait_until("b waits", || client.run(&list).contains(" flags=b "));
    let second = server.block(&format!("FAIRLOCK.ACQUIRE {lock} c LEASE 600000"));
    (first, second)
}

/// Sends commands that take the server long, and waits until it has begun.
fn begin(server: &Server, wire: &mut Wire, commands: &str) {
    wire.send(commands);
    wait_until(commands, || server.unread(wire.port()).0 == 0);
}

#[test]
fn a_receiver_that_goes_before_its_reply_is_made_passes_the_lock_on() {
    let server = server();
    let mut client = server.connect();
    let mut releasing = Wire::new(server.port);
    let mut sleep = Duration::from_millis(100);
    let (mut round, mut slept) = (0, Duration::ZERO);
    while round < 2 || slept < Duration::from_secs(2) {
        let lock = format!("k{round}:{sleep:?}");
        let (mut first, second) = two_waiters(&server, &mut client, &lock);
        if round % 2 == 0 {
            assert_eq!(first.line(), "+PONG");
        }
        let start = Instant::now();
        let seconds = sleep.as_secs_f64();
        let release = format!("FAIRLOCK.RELEASE {lock} a\nDEBUG SLEEP {seconds}");
        begin(&server, &mut releasing, &release);
        // With unread replies, this resets the connection.
        drop(first);
        if start.elapsed() < sleep {
            round += 1;
            slept += sleep;
        } else {
            // This machine was too slow, and the receiver may have its token: once more, with more time.
            sleep *= 2;
            client.run(&format!("FAIRLOCK.RELEASE {lock} b"));
        }
        assert!(second.int() > 0, "round {round}");
        assert_eq!(releasing.line(), ":0");
        assert_eq!(releasing.line(), "+OK");
    }
}

#[test]
fn a_token_that_may_have_been_read_is_not_taken_back() {
    let server = server();
    let mut client = server.connect();
    for round in 0..14 {
        let (lock, other) = (format!("k{round}"), format!("other{round}"));
        let (mut first, second) = two_waiters(&server, &mut client, &lock);
        assert_eq!(first.line(), "+PONG");
        client.int(&format!("FAIRLOCK.ACQUIRE {other} a"));
        // Unblocked in the same iteration, the killer's next commands run while an I/O thread writes the reply.
        let mut killer = Wire::new(server.port);
        let pause = ["", "DEBUG SLEEP 0.01\n"][round % 2];
        let kill = format!("{pause}CLIENT KILL ID {}", first.id);
        killer.send(&format!("FAIRLOCK.ACQUIRE {other} b\n{kill}"));
        wait_until("the killer waits", || server.blocked() == 3);
        client.at_once(&[
            &format!("FAIRLOCK.RELEASE {lock} a"),
            &format!("FAIRLOCK.RELEASE {other} a"),
        ]);
        let has_token = first.line_if_open().is_some();
        killer.token();
        // The connection closes before the next iteration or the one behind it.
        wait_until("it is killed", || server.blocked() < 2 || has_token);
        if has_token {
            let released = client.run(&format!("FAIRLOCK.RELEASE {lock} b"));
            assert_eq!(released, "0", "round {round}");
        }
        assert!(second.int() > 0, "round {round}");
    }
}

#[test]
fn a_token_that_was_read_is_kept_if_another_reply_of_its_length_is_lost() {
    let (server, mut client) = Server::connected();
    let (mut first, _second) = two_waiters(&server, &mut client, "k");
    client.int("FAIRLOCK.RELEASE k a");
    assert_eq!(first.line(), "+PONG");
    let token = first.token().to_string();
    first.send("BLPOP q 0");
    wait_until("it waits again", || server.blocked() == 2);
    // The list's name and value are a reply as long as the token's. It is killed before that is written.
    let around = "*2\r\n$1\r\nq\r\n$n\r\n\r\n".len() - ":\r\n".len();
    let value = "v".repeat(token.len() - around);
    let kill = format!("CLIENT KILL ID {}", first.id);
    client.run_many([&format!("RPUSH q {value}"), &kill]);
    assert_eq!(first.line_if_open(), None);
    let release = format!("FAIRLOCK.RELEASE k b TOKEN {token}");
    client.assert_reply(&release, "0");
}

const STALL: Duration = Duration::from_secs(4);

/// The server stands still for a command; what was sent meanwhile is read by the threads. While the process is stopped:
/// `stalls`.
#[test]
fn a_release_that_came_in_time_serves_a_waiter_whose_time_ended_unheard() {
    let server = server();
    let mut client = server.connect();
    let mut pairs: Vec<_> = (0..4)
        .map(|n| {
            client.int(&format!("FAIRLOCK.ACQUIRE k{n} a LEASE 600000"));
            (Wire::new(server.port), Wire::new(server.port))
        })
        .collect();
    let start = Instant::now();
    for (n, (waiting, _)) in pairs.iter_mut().enumerate() {
        waiting.send(&format!("FAIRLOCK.ACQUIRE k{n} b WAIT 3000"));
    }
    wait_until("all wait", || server.blocked() == pairs.len());
    // The stall may have begun long before this test is told so.
    let over = Instant::now() + STALL;
    begin(&server, &mut Wire::new(server.port), "DEBUG SLEEP 4");
    for (n, (_, releasing)) in pairs.iter_mut().enumerate() {
        releasing.send(&format!("FAIRLOCK.RELEASE k{n} a"));
    }
    let in_time = start.elapsed() < Duration::from_millis(2900);
    sleep(STALL);
    for (waiting, releasing) in &mut pairs {
        assert_eq!(releasing.line(), ":0");
        // Else this machine was too slow: the release was sent too late, or no thread was given the time to read it.
        if in_time && over.elapsed() < Duration::from_millis(150) {
            assert!(waiting.token() > 0);
        }
    }
}
