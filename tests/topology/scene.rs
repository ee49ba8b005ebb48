//! A lock that is held and waited for, and how it goes on at another server.

use fairlock_testing::cluster::Cluster;
use fairlock_testing::{Blocked, Server, wait_until};

/// The waiters of the lock `k`, in order.
pub const QUEUE: &str = "LRANGE redisson_lock_queue:{k} 0 -1";

/// What a blocked waiter is told when its lock has left with its slot. It asks again, and the server says where.
pub const LEFT: &str = "(error) TRYAGAIN the lock is on its way to another node of the cluster";

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
    client.assert_reply(QUEUE, "[b, c, d]");
    assert_eq!(client.holders("k"), "[a, 1]");
    client.assert_reply(&format!("FAIRLOCK.RELEASE k a TOKEN {token}"), "0");
    let token_of_b = b.int();
    assert!(token_of_b > token);
    assert!(!d.is_done());
    client.assert_reply("FAIRLOCK.RELEASE k b", "0");
    let token_of_c = client.int("FAIRLOCK.ACQUIRE k c ENQUEUE LEASE 600000");
    assert!(token_of_c > token_of_b);
    client.assert_reply("FAIRLOCK.RELEASE k c", "0");
    assert!(d.int() > token_of_c);
    client.assert_reply("FAIRLOCK.RELEASE k d", "0");
    client.assert_reply(QUEUE, "[]");
}

/// Waits until a server knows the queue of `k`.
#[track_caller]
pub fn knows_the_queue(node: &Server) {
    wait_until("the queue is known", || {
        let locks = node.connect().run("FAIRLOCK.LOCKS");
        locks.starts_with("[[name, k, ")
    });
}

/// The slot of `k` moves from the first master to the second, the lock has other holders there, and the slot moves
/// back: neither a session nor a waiter of its first stay comes back with it. Turns must be long.
#[track_caller]
pub fn nothing_comes_back(cluster: &Cluster, moves: impl Fn(usize, usize)) {
    let [home, away] = [0, 1].map(|node| &cluster.masters[node]);
    for _ in 0..3 {
        let mut session = home.connect();
        session.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
        home.run("FAIRLOCK.ACQUIRE k p ENQUEUE PATIENCE 600000");
        moves(0, 1);
        let mut there = away.connect();
        there.assert_reply("FAIRLOCK.RELEASE k a", "0");
        there.int("FAIRLOCK.ACQUIRE k p ENQUEUE");
        there.assert_reply("FAIRLOCK.RELEASE k p", "0");
        there.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        moves(1, 0);
        let waiter = home.block("FAIRLOCK.ACQUIRE k b");
        let connection = format!("id={} ", session.id);
        drop(session);
        wait_until("the first connection has closed", || {
            !home.run("CLIENT LIST").contains(&connection)
        });
        assert_eq!(home.connect().holders("k"), "[a, 1]");
        home.assert_reply(QUEUE, "[b]");
        assert!(!waiter.is_done());
        home.assert_reply("FAIRLOCK.RELEASE k a", "0");
        waiter.int();
        home.assert_reply("FAIRLOCK.RELEASE k b", "0");
    }
}

/// A session ends at the node that its slot leaves. Its lock lives on by the lease, and the connection has no say any
/// more.
#[track_caller]
pub fn a_session_stays_behind(cluster: &Cluster, moves: impl Fn(usize, usize)) {
    let [home, away] = [0, 1].map(|node| &cluster.masters[node]);
    let mut holder = home.connect();
    let token = holder.int("FAIRLOCK.ACQUIRE k a SESSION LEASE 600000");
    moves(0, 1);
    wait_until("it has ended", || home.count("session_locks") == 0);
    let waiter = away.block("FAIRLOCK.ACQUIRE k b");
    let end = away.run("PEXPIRETIME k");
    drop(holder);
    home.assert_reply("PING", "PONG");
    assert_eq!(away.connect().token("k"), token);
    away.assert_reply("PEXPIRETIME k", &end);
    // What is cut short is not renewed.
    away.run("PEXPIRE k 1000");
    assert!(waiter.int() > token);
}

/// Tokens grow from node to node and back, though the clock of the first is ahead.
#[track_caller]
pub fn tokens_grow(cluster: &Cluster, moves: impl Fn(usize, usize)) {
    cluster.masters[0].set_clock(5);
    let mut last = 0;
    for (from, to) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
        let mut client = cluster.masters[from].connect();
        for _ in 0..3 {
            let token = client.int("FAIRLOCK.ACQUIRE k a");
            assert!(token > last, "{token} after {last}");
            last = token;
            client.int("FAIRLOCK.RELEASE k a");
        }
        moves(from, to);
    }
}
