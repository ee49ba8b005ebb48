//! I/O threads read requests while the server goes on: requests that came in time count as in time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fairlock_testing::{Server, Wire, wait_until};

fn server() -> Server {
    let server = Server::with(&["--io-threads", "4", "--enable-debug-command", "yes"]);
    let mut client = server.connect();
    // Valkey lets its threads rest while there is little to do; others do not know these options.
    client.run("CONFIG SET events-per-io-thread 0");
    client.run("CONFIG SET io-threads-always-active yes");
    server
}

/// Sends commands that take the server long, and waits until it has begun.
fn begin(server: &Server, wire: &mut Wire, commands: &str) {
    wire.send(commands);
    wait_until(commands, || server.unread(wire.port()).0 == 0);
}

/// Waits that end during a stall, which sends a release for each while it lasts.
fn waits_that_end_unheard(server: &Server, stall: impl FnOnce(&mut dyn FnMut())) {
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
    let mut in_time = true;
    stall(&mut || {
        for (n, (_, releasing)) in pairs.iter_mut().enumerate() {
            releasing.send(&format!("FAIRLOCK.RELEASE k{n} a"));
        }
        in_time = start.elapsed() < Duration::from_millis(2900);
        sleep(Duration::from_secs(4));
    });
    // Else this machine was too slow.
    if in_time {
        for (waiting, _) in &mut pairs {
            assert!(waiting.token() > 0);
        }
    }
}

#[test]
fn a_release_that_came_in_time_during_a_command_serves_a_waiter_whose_time_ended_unheard() {
    let server = server();
    waits_that_end_unheard(&server, |release| {
        begin(&server, &mut Wire::new(server.port), "DEBUG SLEEP 4");
        release();
    });
}

#[test]
fn a_release_that_came_in_time_while_stopped_serves_a_waiter_whose_time_ended_unheard() {
    let server = server();
    waits_that_end_unheard(&server, |release| server.while_stopped(release));
}
