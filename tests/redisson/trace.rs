//! What a server writes to one lock's keys, command by command, as it replicates it.
//!
//! Two servers that do the same write the same, but for the time; so moments are left out, and the
//! lease, which clients renew when they like.

use std::sync::mpsc::{self, Receiver};
use std::thread;

use fairlock_testing::{Client, Server, give_up, wait_until};

use crate::replica::Replica;

/// Written to the server to mark the moment up to which writes are wanted.
const NOW: &str = "trace-until-now";
/// Numbers from here on are milliseconds since 1970.
const MOMENT: f64 = 1e12;

/// Writes down what a server writes, from its start on.
pub struct Trace {
    port: u16,
    writes: Receiver<Vec<String>>,
}

impl Trace {
    pub fn new(server: &Server) -> Self {
        let mut replica = Replica::follow(server.port);
        let (sender, writes) = mpsc::channel();
        thread::spawn(move || {
            while let Some(words) = replica.next() {
                // The test may have ended.
                if sender.send(words).is_err() {
                    break;
                }
            }
        });
        wait_until("the trace has begun", || {
            server
                .info("replication", "slave0")
                .contains("state=online")
        });
        let port = server.port;
        Self { port, writes }
    }

    /// What was written to some keys since it was asked last, in order.
    pub fn until_now(&self, keys: &[&str]) -> Vec<String> {
        Client::new(self.port, 2).run(&format!("SET {NOW} 1 PX 1"));
        let next = || self.writes.recv_timeout(give_up()).expect("a write");
        std::iter::repeat_with(next)
            .take_while(|words| !(words[0] == "SET" && words[1] == NOW))
            .filter(|words| words.iter().any(|word| keys.contains(&word.as_str())))
            .filter(|words| !is_lease(words, keys))
            .map(|words| timeless(&words))
            .collect()
    }
}

/// The first of the keys is the lock's own.
fn is_lease(words: &[String], keys: &[&str]) -> bool {
    words[0].eq_ignore_ascii_case("PEXPIREAT") && words[1] == keys[0]
}

/// The words, but for moments.
pub fn timeless(words: &[String]) -> String {
    let is_moment = |word: &str| word.parse().is_ok_and(|number: f64| number >= MOMENT);
    let words = words.iter().map(|word| match word.as_str() {
        moment if is_moment(moment) => "<moment>",
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
}
