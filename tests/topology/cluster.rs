//! A cluster of real servers with the module.

use std::ops::Deref;

use crate::client::Blocked;
use crate::server::{Server, wait_until};

/// Milliseconds; a busy machine must not make a node look dead.
const NODE_TIMEOUT: &str = "4000";

/// Who waits for the lock `k`, in order.
pub const QUEUE: &str = "LRANGE redisson_lock_queue:{k} 0 -1";

/// A node.
pub struct Node {
    server: Server,
    pub id: String,
}

impl Deref for Node {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Node {
    fn start(options: &[&str]) -> Self {
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
        let server = Server::with_movable_clock(&[&cluster[..], options].concat());
        let id = server.connect().run("CLUSTER MYID");
        Self { server, id }
    }

    /// Where clients reach it.
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

    /// Runs a command as a client that was sent here by ASK.
    pub fn asking(&self, command: &str) -> String {
        let mut client = self.connect();
        assert_eq!(client.run("ASKING"), "OK");
        client.run(command)
    }

    fn is_ok(&self) -> bool {
        self.run("CLUSTER INFO").contains("cluster_state:ok")
    }

    fn knows(&self, other: &Self) -> bool {
        self.run("CLUSTER NODES").contains(&other.id)
    }
}

/// Masters that share the slots, and their replicas.
pub struct Cluster {
    pub masters: Vec<Node>,
    pub replicas: Vec<Node>,
}

impl Cluster {
    /// Starts masters with equal shares of the slots, each with so many replicas.
    pub fn start(masters: usize, replicas: usize, options: &[&str]) -> Self {
        let start = |count| (0..count).map(|_| Node::start(options)).collect();
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

    /// Waits until all nodes are content.
    pub fn is_ready(&self) {
        wait_until("the replicas are up to date", || {
            let mut links = self
                .replicas
                .iter()
                .map(|node| node.info("replication", "master_link_status"));
            links.all(|status| status == "up")
        });
        let replicas = self.replicas.len();
        wait_until("all agree on who is whose replica", || {
            let agrees =
                |node: &Node| node.run("CLUSTER NODES").matches("slave ").count() == replicas;
            self.nodes().all(agrees)
        });
        wait_until("the cluster is up", || self.nodes().all(Node::is_ok));
    }

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

/// The keys of a lock without braces in its name.
pub fn keys_of(lock: &str) -> [String; 3] {
    let derived = |what| format!("redisson_lock_{what}:{{{lock}}}");
    [lock.to_owned(), derived("queue"), derived("timeout")]
}

/// A slot on its way from one master to another, by the steps that redis-cli takes.
pub struct Move<'c> {
    pub cluster: &'c Cluster,
    pub slot: usize,
    pub from: &'c Node,
    pub to: &'c Node,
}

impl<'c> Move<'c> {
    /// Opens the slot at both nodes.
    pub fn begin(cluster: &'c Cluster, slot: usize, from: usize, to: usize) -> Self {
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
        migrate(self.from, self.to, keys);
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

#[track_caller]
fn migrate(from: &Node, to: &Node, keys: &[String]) {
    let keys = keys.join(" ");
    // The key before the word KEYS is empty.
    let reply = from.run(&format!(
        "MIGRATE 127.0.0.1 {}  0 30000 KEYS {keys}",
        to.port
    ));
    assert!(reply == "OK" || reply == "NOKEY", "{reply}");
}

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

    /// Nobody has been told anything.
    #[track_caller]
    pub fn all_wait(&self) {
        assert!(self.blocked.iter().all(|waiter| !waiter.is_done()));
    }
}

/// The lock of [`Scene`] goes on at another server: who comes back, the last first, finds its
/// place. It is free in the end.
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
