//! A cluster of real servers with the module.

use std::collections::{BTreeSet, HashSet};
use std::ops::{Deref, DerefMut};

use crate::server::Server;
use crate::wait::wait_until;

/// Milliseconds; a busy machine must not make a node look dead.
const NODE_TIMEOUT: &str = "10000";

/// A node.
pub struct Node {
    server: Server,
    /// The id by which other nodes know it.
    pub id: String,
}

impl Deref for Node {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

impl Node {
    fn start(with_module: bool, options: &[&str]) -> Self {
        let cluster = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            NODE_TIMEOUT,
            // A replica that has fallen behind for a moment is still a candidate.
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
        ];
        let options = [&cluster[..], options].concat();
        let server = if with_module {
            Server::with_movable_clock(&options)
        } else {
            Server::without_module(&options)
        };
        let id = server.connect().run("CLUSTER MYID");
        Self { server, id }
    }

    /// Its address for clients.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs a command that must not fail.
    #[track_caller]
    pub fn run(&self, command: &str) -> String {
        let reply = self.connect().run(command);
        assert!(!reply.starts_with("(error)"), "{command}: {reply}");
        reply
    }

    /// Runs a command that must get this reply.
    #[track_caller]
    pub fn assert_reply(&self, command: &str, reply: &str) {
        self.connect().assert_reply(command, reply);
    }

    /// Runs a command as a client that was sent here by ASK.
    pub fn asking(&self, command: &str) -> String {
        let mut client = self.connect();
        assert_eq!(client.run("ASKING"), "OK");
        client.run(command)
    }

    /// Whether it sees the cluster as up.
    pub fn is_ok(&self) -> bool {
        self.run("CLUSTER INFO").contains("cluster_state:ok")
    }

    /// What it tells of each master: its id, the epoch of its slots, and the slots, but those that move.
    fn view(&self) -> BTreeSet<Vec<String>> {
        let nodes = self.run("CLUSTER NODES");
        let masters = nodes.split("\\n").filter(|line| line.contains("master"));
        let told = masters.map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let slots = words[8..].iter().filter(|slot| !slot.starts_with('['));
            let told = [&words[0], &words[6]].into_iter().chain(slots);
            told.map(|word| (*word).to_owned()).collect()
        });
        told.collect()
    }

    fn knows(&self, other: &Self) -> bool {
        self.run("CLUSTER NODES").contains(&other.id)
    }
}

/// Masters that share the slots, and their replicas.
pub struct Cluster {
    /// The masters, in the order of their slots.
    pub masters: Vec<Node>,
    /// The replicas: one of the first master, one of the second and so on, then the next round.
    pub replicas: Vec<Node>,
}

impl Cluster {
    /// Starts masters with equal shares of the slots, each with a number of replicas.
    pub fn start(masters: usize, replicas: usize, options: &[&str]) -> Self {
        Self::of(masters, replicas, || Node::start(true, options))
    }

    /// Masters without the module.
    pub fn without_module(masters: usize, options: &[&str]) -> Self {
        Self::of(masters, 0, || Node::start(false, options))
    }

    fn of(masters: usize, replicas: usize, node: impl Fn() -> Node) -> Self {
        let start = |count| (0..count).map(|_| node()).collect();
        let cluster = Self {
            masters: start(masters),
            replicas: start(masters * replicas),
        };
        for (number, master) in cluster.masters.iter().enumerate() {
            let first = number * 16_384 / masters;
            let last = (number + 1) * 16_384 / masters - 1;
            master.run(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            master.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
        }
        let first = &cluster.masters[0];
        for node in cluster.nodes() {
            first.run(&format!("CLUSTER MEET 127.0.0.1 {}", node.port));
        }
        wait_until("the nodes know each other", || {
            let mut pairs = cluster
                .nodes()
                .flat_map(|a| cluster.nodes().map(move |b| (a, b)));
            pairs.all(|(a, b)| a.knows(b))
        });
        for (number, replica) in cluster.replicas.iter().enumerate() {
            let master = &cluster.masters[number % masters].id;
            replica.run(&format!("CLUSTER REPLICATE {master}"));
        }
        cluster.is_ready();
        cluster
    }

    /// Waits until all nodes see the cluster as up.
    pub fn is_ready(&self) {
        wait_until("the replicas are up to date", || {
            let mut links = self
                .replicas
                .iter()
                .map(|node| node.info("replication", "master_link_status"));
            links.all(|status| status == "up")
        });
        let replicas = self.replicas.len();
        wait_until("every node knows every replica's master", || {
            let agrees =
                |node: &Node| node.run("CLUSTER NODES").matches("slave ").count() == replicas;
            self.nodes().all(agrees)
        });
        wait_until("the cluster is up", || self.nodes().all(Node::is_ok));
    }

    /// Waits until all masters tell the same of each other: who has which slots, and since which epoch. A node that was
    /// given a slot while an older claim to it is still on its way may lose the slot again.
    pub fn agrees(&self) {
        wait_until("the masters agree who has which slots", || {
            let mut views = self.masters.iter().map(Node::view);
            let first = views.next();
            let epochs: HashSet<_> = first.iter().flatten().map(|master| &master[1]).collect();
            epochs.len() == self.masters.len() && views.all(|view| Some(view) == first)
        });
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.masters.iter().chain(&self.replicas)
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> usize {
        let slot = self.masters[0].run(&format!("CLUSTER KEYSLOT {key}"));
        slot.parse().expect("a slot")
    }

    /// The number of the master that a slot was given at the start.
    pub fn home(&self, key: &str) -> usize {
        let masters = self.masters.len();
        let slot = self.slot(key);
        let home = (0..masters).find(|number| slot < (number + 1) * 16_384 / masters);
        home.expect("a master")
    }

    /// A lock whose slot is this master's.
    pub fn lock_of(&self, master: usize) -> String {
        let mut names = (0..).map(|number| format!("lock-{number}"));
        names
            .find(|name| self.home(name) == master)
            .expect("a name")
    }
}
