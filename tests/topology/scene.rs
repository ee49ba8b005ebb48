//! A lock that is held and waited for, and how it goes on at another server.

use fairlock_testing::{Blocked, Server};

/// The waiters of the lock `k`, in order.
pub const QUEUE: &str = "LRANGE redisson_lock_queue:{k} 0 -1";

/// The lock `k` with a holder `a`; `b` and `d` are blocked, `c` polls between them.
pub struct Scene {
    pub token: i64,
    pub blocked: [Blocked; 2],
}

impl Scene {
    pub fn new(node: &Server) -> Self {
        let mut client = node.connect();
        let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        let first = node.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
        client.run("FAIRLOCK.ACQUIRE k c ENQUEUE PATIENCE 600000 LEASE 600000");
        let last = node.block("FAIRLOCK.ACQUIRE k d LEASE 600000");
        Self {
            token,
            blocked: [first, last],
        }
    }

    /// No waiter has a reply.
    #[track_caller]
    pub fn all_wait(&self) {
        assert!(self.blocked.iter().all(|waiter| !waiter.is_done()));
    }
}

/// The lock of [`Scene`] goes on at another server: waiters that come back, the last first, find their places. It is
/// free in the end.
#[track_caller]
pub fn goes_on(new: &Server, token: i64) {
    let d = new.block("FAIRLOCK.ACQUIRE k d LEASE 600000");
    let b = new.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    let mut client = new.connect();
    assert_eq!(client.run(QUEUE), "[b, c, d]");
    assert_eq!(client.holders("k"), "[a, 1]");
    assert_eq!(
        client.run(&format!("FAIRLOCK.RELEASE k a TOKEN {token}")),
        "0"
    );
    let token_of_b = b.int();
    assert!(token_of_b > token);
    assert!(!d.is_done());
    assert_eq!(client.run("FAIRLOCK.RELEASE k b"), "0");
    let token_of_c = client.int("FAIRLOCK.ACQUIRE k c ENQUEUE LEASE 600000");
    assert!(token_of_c > token_of_b);
    assert_eq!(client.run("FAIRLOCK.RELEASE k c"), "0");
    assert!(d.int() > token_of_c);
    assert_eq!(client.run("FAIRLOCK.RELEASE k d"), "0");
    assert_eq!(client.run(QUEUE), "[]");
}
