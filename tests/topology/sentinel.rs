//! A master, two replicas and three sentinels.

use std::fs;
use std::path::Path;

use fairlock_testing::{Launch, Server, follow, wait_until};
use tempfile::TempDir;

use crate::scene::{QUEUE, Scene, goes_on};

const SENTINELS: usize = 3;

/// Starts a sentinel, which keeps what it knows in a file.
fn sentinel(file: &Path, master: u16) -> Server {
    // A busy machine must not make a master look dead.
    let configuration = format!(
        "sentinel monitor fair 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds fair 5000\n\
         sentinel failover-timeout fair 20000\n\
         sentinel parallel-syncs fair 2\n",
    );
    fs::write(file, configuration).expect("written");
    let file = file.to_str().expect("a UTF-8 path");
    Server::launch(&Launch::plain(&[file, "--sentinel"]))
}

/// A field of what a sentinel knows of the master.
fn known(sentinel: &Server, field: &str) -> String {
    let known = sentinel.connect().run("SENTINEL MASTER fair");
    let mut words = known.trim_matches(['[', ']']).split(", ");
    words.find(|word| *word == field);
    words.next().unwrap_or_default().to_owned()
}

struct Installation {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
    _files: TempDir,
}

impl Installation {
    fn start() -> Self {
        let options = [
            "--repl-diskless-sync-delay",
            "0",
            "--fairlock.turn",
            "60000",
        ];
        let servers: Vec<Server> = (0..3).map(|_| Server::with(&options)).collect();
        let master = servers[0].port;
        for replica in &servers[1..] {
            follow(replica, &servers[0]);
        }
        let files = TempDir::new().expect("a temporary directory");
        let sentinels = (0..SENTINELS).map(|number| {
            let file = files.path().join(number.to_string());
            sentinel(&file, master)
        });
        let installation = Self {
            servers,
            sentinels: sentinels.collect(),
            _files: files,
        };
        installation.is_ready();
        installation
    }

    fn is_ready(&self) {
        for sentinel in &self.sentinels {
            wait_until("the sentinel knows all", || {
                known(sentinel, "num-slaves") == "2"
                    && known(sentinel, "num-other-sentinels") == "2"
            });
            wait_until("a failover would be possible", || {
                sentinel
                    .connect()
                    .run("SENTINEL CKQUORUM fair")
                    .starts_with("OK ")
            });
        }
        // A sentinel considers only replicas whose state it has heard.
        wait_until("the replicas are candidates", || {
            let replicas = self.sentinels[0].connect().run("SENTINEL REPLICAS fair");
            replicas.matches("master-link-status, ok").count() == 2
        });
    }

    /// The master's port, as a client finds it.
    fn master(&self) -> u16 {
        let mut client = self.sentinels[0].connect();
        let address = client.run("SENTINEL GET-MASTER-ADDR-BY-NAME fair");
        let port = address.trim_matches(['[', ']']).rsplit(", ").next();
        port.and_then(|port| port.parse().ok()).expect("a port")
    }

    fn server(&self, port: u16) -> &Server {
        let mut servers = self.servers.iter();
        servers
            .find(|server| server.port == port)
            .expect("one that was started")
    }

    /// Waits until the sentinels name another master, and it is one.
    fn new_master(&self, old: u16) -> &Server {
        let mut port = old;
        wait_until("there is a new master", || {
            port = self.master();
            port != old && self.server(port).info("replication", "role") == "master"
        });
        self.server(port)
    }
}

/// A failover; waiters that ask again at the new master have kept their places.
fn fails_over(begin: impl FnOnce(&Installation, &Server)) {
    let installation = Installation::start();
    let old = installation.master();
    let scene = Scene::new(installation.server(old));
    for replica in &installation.servers[1..] {
        wait_until("the replica has all", || {
            replica.connect().run(QUEUE) == "[b, c, d]"
        });
    }
    scene.all_wait();
    begin(&installation, installation.server(old));
    let new = installation.new_master(old);
    for waiter in scene.blocked {
        let reply = waiter.reply();
        assert!(reply.starts_with("(error) "), "{reply}");
    }
    goes_on(new, scene.token);
}

#[test]
fn a_killed_master_is_replaced_and_all_places_are_kept() {
    fails_over(|_, master| master.signal("KILL"));
}

#[test]
fn a_failover_on_demand_keeps_every_place() {
    fails_over(|installation, _| {
        let mut sentinel = installation.sentinels[0].connect();
        sentinel.assert_reply("SENTINEL FAILOVER fair", "OK");
    });
}
