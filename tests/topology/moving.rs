//! A slot on its way from one master to another, key by key.

use fairlock_testing::cluster::{Cluster, Node};

/// The lock `k` is the first of two masters'.
pub const HOME: usize = 0;
pub const AWAY: usize = 1;

/// From which to which it moves, each time.
pub fn to_and_fro() -> impl Iterator<Item = (usize, usize)> {
    [(HOME, AWAY), (AWAY, HOME)].into_iter().cycle()
}

/// Two masters. No token is ahead of the clock there, and kept in a key that would have to move too.
pub fn two_masters(options: &[&str]) -> Cluster {
    let options = [&["--fairlock.clock-skew", "0"], options].concat();
    let cluster = Cluster::start(2, 0, &options);
    assert_eq!(cluster.home("k"), HOME);
    cluster
}

/// The slot of `k` on its way from one master to another, by the steps that redis-cli takes.
pub struct Move<'c> {
    pub cluster: &'c Cluster,
    pub slot: usize,
    pub from: &'c Node,
    pub to: &'c Node,
}

impl<'c> Move<'c> {
    /// Opens the slot at both nodes, once a move before this one is known to both.
    pub fn begin(cluster: &'c Cluster, from: usize, to: usize) -> Self {
        cluster.agrees();
        let slot = cluster.slot("k");
        let (from, to) = (&cluster.masters[from], &cluster.masters[to]);
        to.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id));
        from.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id));
        Self {
            cluster,
            slot,
            from,
            to,
        }
    }

    /// Moves keys. Those that are not there do not matter.
    #[track_caller]
    pub fn keys(&self, keys: &[String]) {
        // The key before the word KEYS is empty.
        let target = format!("MIGRATE 127.0.0.1 {}  0 30000", self.to.port);
        let reply = self.from.run(&format!("{target} KEYS {}", keys.join(" ")));
        assert!(reply == "OK" || reply == "NOKEY", "{reply}");
    }

    /// The slot is the new master's.
    pub fn finish(self) {
        let node = format!("CLUSTER SETSLOT {} NODE {}", self.slot, self.to.id);
        for master in [self.to, self.from]
            .into_iter()
            .chain(&self.cluster.masters)
        {
            master.run(&node);
        }
    }

    /// The slot stays where it was; no key has moved yet.
    pub fn give_up(self) {
        for node in [self.to, self.from] {
            node.run(&format!("CLUSTER SETSLOT {} STABLE", self.slot));
        }
    }
}
