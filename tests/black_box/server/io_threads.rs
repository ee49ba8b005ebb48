//! I/O threads: a server that reads and writes on several threads runs the module's code on its main thread only.

use std::thread;

use fairlock_testing::{Server, Wire, wait_until};

const THREADS: &str = "--io-threads 4 --appendonly yes --appendfsync no";

/// Calls with more keys than words, with no number of keys, and well-formed.
const CALLS: &str = "FAIRLOCK.EVAL s 5 a\nFAIRLOCK.EVAL s x\nFAIRLOCK.EVAL s 1 a";

/// Has clients without a password send calls whose keys the server looks for before it asks for the password, while
/// others use locks.
fn bear_strangers(options: &str) {
    let options: Vec<_> = THREADS
        .split(' ')
        .chain(options.split_whitespace())
        .collect();
    let server = Server::with(&options);
    let mut admin = server.connect();
    if admin.text("INFO cluster").contains("cluster_enabled:1") {
        admin.run("CLUSTER ADDSLOTSRANGE 0 16383");
        wait_until("it is up", || {
            admin.text("CLUSTER INFO").contains("cluster_state:ok")
        });
    }
    let mut users: Vec<_> = (0..8).map(|_| server.connect()).collect();
    admin.run("CONFIG SET requirepass x");
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut stranger = Wire::new(server.port);
                for _ in 0..15 {
                    stranger.send(&[CALLS; 100].join("\n"));
                    for _ in 0..300 {
                        assert_eq!(stranger.line(), "-NOAUTH Authentication required.");
                    }
                }
            });
        }
        for (number, user) in users.iter_mut().enumerate() {
            scope.spawn(move || {
                let pair =
                    ["ACQUIRE", "RELEASE"].map(|word| format!("FAIRLOCK.{word} k{number} a"));
                for _ in 0..40 {
                    user.run_many(pair.iter().cycle().take(100));
                }
            });
        }
    });
    admin.run("CONFIG SET requirepass ");
    // Its file is sound.
    admin.run("CONFIG SET appendfsync always");
    admin.int("FAIRLOCK.ACQUIRE k a");
    let server = server.kill_and_restart();
    wait_until("the lock is back", || {
        server.connect().run("HGET k a") == "1"
    });
}

#[test]
fn a_client_without_a_password_cannot_end_the_server() {
    bear_strangers("");
}

#[test]
fn nor_that_of_a_cluster() {
    bear_strangers("--cluster-enabled yes");
}
