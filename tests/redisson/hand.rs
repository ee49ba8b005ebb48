//! A client of Redisson's newest release that the test controls: it asks on request, for any owner, with any patience
//! and lease, by any clock.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use fairlock_testing::redisson::call;
use fairlock_testing::redisson::harvest::SCRIPTS;
use fairlock_testing::{Client, Server};

use crate::conformance::QUEUE;

/// The patience of `lock()`, in milliseconds.
pub const PATIENCE: u64 = 300_000;
const LEASE: u64 = 30_000;
/// A script's reply when the owner has the lock.
pub const ACQUIRED: &str = "(nil)";

/// The owners' connection.
pub struct Hand {
    pub client: Client,
    /// How far its clock is ahead of the server's, in milliseconds.
    pub ahead: i64,
    /// Requests so far; each has a latch of its own.
    requests: usize,
}

impl Hand {
    pub fn of(server: &Server) -> Self {
        // It takes a JVM to get them: not while leases run.
        LazyLock::force(&SCRIPTS);
        Self {
            client: server.connect(),
            ahead: 0,
            requests: 0,
        }
    }

    /// Asks for `k`: [`ACQUIRED`], or the owner stands in the queue.
    pub fn lock(&mut self, owner: &str, patience: u64) -> String {
        self.lock_for(owner, patience, LEASE)
    }

    /// An owner asks for `k`, and has it.
    #[track_caller]
    pub fn takes(&mut self, owner: &str) {
        assert_eq!(self.lock(owner, PATIENCE), ACQUIRED, "{owner}");
    }

    /// Owners ask for `k`, and have to wait.
    #[track_caller]
    pub fn waits<const N: usize>(&mut self, owners: [&str; N]) {
        for owner in owners {
            assert_ne!(self.lock(owner, PATIENCE), ACQUIRED, "{owner}");
        }
    }

    pub fn lock_for(&mut self, owner: &str, patience: u64, lease: u64) -> String {
        self.eval("lock", owner, patience, lease)
    }

    /// Asks for `k` once, and does not wait.
    pub fn try_lock(&mut self, owner: &str) -> String {
        self.eval("try-lock", owner, PATIENCE, LEASE)
    }

    #[track_caller]
    pub fn renew(&mut self, owner: &str) {
        assert_eq!(self.eval("renew", owner, PATIENCE, LEASE), "[1]", "{owner}");
    }

    #[track_caller]
    pub fn unlock(&mut self, owner: &str) {
        assert_eq!(self.eval("unlock", owner, PATIENCE, LEASE), "1", "{owner}");
    }

    /// Leaves the queue of `k`.
    pub fn leave(&mut self, owner: &str, patience: u64) -> String {
        self.eval("leave", owner, patience, LEASE)
    }

    /// The queue of `k`.
    pub fn queue(&mut self) -> String {
        self.client.run(QUEUE)
    }

    /// How many milliseconds a waiter's deadline is away.
    #[allow(clippy::cast_possible_truncation)]
    pub fn patience_left(&mut self, owner: &str) -> i64 {
        let score = format!("ZSCORE redisson_lock_timeout:{{k}} {owner}");
        let score: f64 = self.client.run(&score).parse().expect("a score");
        // Half a millisecond in it is a mark of the packages' scripts.
        score as i64 - i64::try_from(now()).expect("small")
    }

    fn eval(&mut self, role: &str, owner: &str, patience: u64, lease: u64) -> String {
        self.requests += 1;
        let latch = format!("{:x}", self.requests);
        let now = now().saturating_add_signed(self.ahead);
        let words = call(role, ("k", owner), &latch, [lease, patience, now]);
        let reply = self.client.run_words(&words);
        assert!(!reply.starts_with("(error)"), "{role}: {reply}");
        reply
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("after 1970").as_millis();
    now.try_into().expect("small")
}
