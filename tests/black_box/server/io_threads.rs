//! I/O threads: a server that reads and writes on several threads runs the module's code on its main thread only.

use std::thread;

use fairlock_testing::{Server, Wire, wait_until};

use super::cluster::give_all_slots;

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
    let (server, mut admin) = Server::connected_with(&options);
    if admin.run("INFO cluster").contains("cluster_enabled:1") {
        give_all_slots(&mut admin);
    }
    let mut users: Vec<_> = (0..8).map(|_| server.connect()).collect();
    admin.run("CONFIG SET requirepass x");
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut stranger = Wire::new(server.port);
                for _ in 0..400 {
                    // Newer servers close such a connection if more than 1,024 bytes of replies pile up, and may still
                    // count those of the round before, which were read.
                    stranger.send(&[CALLS; 4].join("\n"));
                    for _ in 0..12 {
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
    admin.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let server = server.kill_and_restart();
    wait_until("the lock is back", || {
        server.connect().run("HGET k a") == "1"
    });
}

#[test]
fn a_client_without_a_password_cannot_end_the_server_nor_that_of_a_cluster() {
    bear_strangers("");
    bear_strangers("--cluster-enabled yes");
}
