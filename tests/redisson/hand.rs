//! A client of Redisson's newest release that the test controls: it asks on request, for any owner, with any patience
//! and lease.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use fairlock_testing::redisson::harvest::{SCRIPTS, script};
use fairlock_testing::redisson::keys;
use fairlock_testing::{Client, Server};

use crate::scenarios::QUEUE;

/// The patience of `lock()`, in milliseconds.
pub const PATIENCE: u64 = 300_000;
const LEASE: u64 = 30_000;
/// Milliseconds for which an unlock that is sent twice is known.
const LATCH: &str = "13500";
/// A script's reply when the owner has the lock.
pub const ACQUIRED: &str = "(nil)";

/// The owners' connection.
pub struct Hand {
    pub client: Client,
    /// Requests so far; each has a latch of its own.
    requests: usize,
}

impl Hand {
    pub fn of(server: &Server) -> Self {
        // It takes a JVM to get them: not while leases run.
        LazyLock::force(&SCRIPTS);
        let client = server.connect();
        Self {
            client,
            requests: 0,
        }
    }

    /// Asks for `k`: [`ACQUIRED`], or the owner stands in the queue.
    pub fn lock(&mut self, owner: &str, patience: u64) -> String {
        self.lock_for(owner, patience, LEASE)
    }

    pub fn lock_for(&mut self, owner: &str, patience: u64, lease: u64) -> String {
        let [lease, patience] = [lease, patience].map(|number| number.to_string());
        self.eval("lock", &[&lease, owner, &patience, &now().to_string()])
    }

    /// As [`Hand::lock`], by a clock that is an hour ahead.
    pub fn lock_ahead(&mut self, owner: &str) -> String {
        let ahead = now() + 3_600_000;
        let [lease, patience] = [LEASE, PATIENCE].map(|number| number.to_string());
        self.eval("lock", &[&lease, owner, &patience, &ahead.to_string()])
    }

    /// Asks for `k` once, and does not wait.
    pub fn try_lock(&mut self, owner: &str) -> String {
        let [lease, patience] = [LEASE, PATIENCE].map(|number| number.to_string());
        self.eval("try-lock", &[&lease, owner, &now().to_string(), &patience])
    }

    #[track_caller]
    pub fn unlock(&mut self, owner: &str) {
        let (lease, now) = (LEASE.to_string(), now().to_string());
        let arguments = ["0", &lease, owner, &now, "PUBLISH", LATCH];
        assert_eq!(self.eval("unlock", &arguments), "1", "{owner}");
    }

    /// Leaves the queue of `k`.
    pub fn leave(&mut self, owner: &str, patience: u64) -> String {
        self.eval("leave", &[owner, &patience.to_string()])
    }

    /// The queue of `k`.
    pub fn queue(&mut self) -> String {
        self.client.run(QUEUE)
    }

    /// How many milliseconds a waiter's deadline is away.
    pub fn patience_left(&mut self, owner: &str) -> i64 {
        self.deadline(owner) - i64::try_from(now()).expect("small")
    }

    /// A waiter's score, in milliseconds.
    #[allow(clippy::cast_possible_truncation)]
    pub fn deadline(&mut self, owner: &str) -> i64 {
        let score = format!("ZSCORE redisson_lock_timeout:{{k}} {owner}");
        let score: f64 = self.client.run(&score).parse().expect("a score");
        // Half a millisecond in it is a mark of the packages' scripts.
        score as i64
    }

    fn eval(&mut self, role: &str, arguments: &[&str]) -> String {
        self.requests += 1;
        let words = call(role, "k", &format!("{:x}", self.requests), arguments);
        let reply = self.client.run_words(&words);
        assert!(!reply.starts_with("(error)"), "{role}: {reply}");
        reply
    }
}

/// The words of a script's call, by its text.
pub fn call(role: &str, lock: &str, latch: &str, arguments: &[&str]) -> Vec<Vec<u8>> {
    let (script, keys) = (script(role), keys(lock, latch));
    let keys = script.keys_of(&keys);
    let count = keys.len().to_string().into_bytes();
    let mut words = vec![b"EVAL".to_vec(), script.text.clone(), count];
    words.extend(keys.iter().map(|key| key.as_bytes().to_vec()));
    words.extend(arguments.iter().map(|word| word.as_bytes().to_vec()));
    words
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("after 1970").as_millis();
    now.try_into().expect("small")
}
