//! A server that has nothing to do sleeps, however long leases are.

use fairlock_testing::native::library;
use fairlock_testing::{Client, Server};
use tempfile::TempDir;

/// Milliseconds of which Redis 7.0 makes a time in the past, if they are the wait for a timer: a thousand times as much
/// is negative as a number of 32 bits. The last are some of which it does not.
const LEASES: [i64; 6] = [
    2_400_000, 3_600_000, 4_000_000, 7_200_000, 1_800_000, 43_200_000,
];

/// How often the event loop begins anew in a second in which no client asks for anything.
fn iterations_of_a_second(client: &mut Client) -> i64 {
    let before = client.int("ITERATIONS");
    client.assert_reply("BLPOP nothing 1", "(nil)");
    client.int("ITERATIONS") - before
}

#[test]
fn a_server_sleeps_while_clients_wait_for_a_lock_with_a_long_lease() {
    let dir = TempDir::new().expect("a directory");
    let counter = library("tests/black_box/server/iterations.c", dir.path());
    let (server, mut client) =
        Server::connected_with(&["--loadmodule", counter.to_str().expect("UTF-8")]);
    for lease in LEASES {
        client.int(&format!("FAIRLOCK.ACQUIRE k{lease} a LEASE {lease}"));
        let session = format!("FAIRLOCK.ACQUIRE s{lease} a LEASE {lease} SESSION");
        client.int(&session);
        let waiters = ["k", "s"].map(|name| {
            let patience = format!("FAIRLOCK.ACQUIRE {name}{lease} p ENQUEUE PATIENCE {lease}");
            client.run(&patience);
            server.block(&format!("FAIRLOCK.ACQUIRE {name}{lease} b"))
        });
        for wait in [20, 40, 60] {
            let command = format!("FAIRLOCK.ACQUIRE k{lease} c WAIT {wait}");
            client.assert_reply(&command, "(nil)");
        }
        let iterations = iterations_of_a_second(&mut client);
        // The server's own job runs ten times a second.
        assert!(iterations < 200, "{lease}: {iterations}");
        client.run("FLUSHALL");
        for waiter in waiters {
            waiter.int();
        }
        client.run("FLUSHALL");
    }
}
