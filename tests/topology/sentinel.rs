//! A master, two replicas and three sentinels.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testing::{Client, Server, follow, free_port, wait_until};
use tempfile::TempDir;

use crate::scene::{QUEUE, Scene, goes_on};

const SENTINELS: usize = 3;

/// A sentinel; killed when dropped.
struct Sentinel {
    process: Child,
    port: u16,
    _dir: TempDir,
}

impl Sentinel {
    fn start(master: u16) -> Self {
        // Another process may take the port after it was chosen: then the next one is tried.
        for _ in 0..20 {
            let mut sentinel = Self::spawn(master);
            let mut is_up = false;
            wait_until("the sentinel has started", || {
                is_up = redis::Client::open(format!("redis://127.0.0.1:{}/", sentinel.port))
                    .and_then(|client| client.get_connection())
                    .and_then(|mut connection| redis::cmd("INFO").query(&mut connection))
                    .is_ok_and(|info: String| {
                        info.contains(&format!("process_id:{}\r", sentinel.process.id()))
                    });
                is_up || sentinel.process.try_wait().expect("its state").is_some()
            });
            if is_up {
                return sentinel;
            }
        }
        panic!("no sentinel starts");
    }

    fn spawn(master: u16) -> Self {
        let port = free_port();
        let dir = TempDir::new().expect("a temporary directory");
        let file = dir.path().join("sentinel.conf");
        // A busy machine must not make a master look dead.
        let configuration = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nlogfile log\n\
             sentinel monitor fair 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds fair 5000\n\
             sentinel failover-timeout fair 20000\n\
             sentinel parallel-syncs fair 2\n",
            dir.path().display()
        );
        fs::write(&file, configuration).expect("written");
        let process = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        Self {
            process,
            port,
            _dir: dir,
        }
    }

    fn connect(&self) -> Client {
        Client::new(self.port, 2)
    }

    /// A field of what it knows of the master.
    fn knows(&self, field: &str) -> String {
        let known = self.connect().run("SENTINEL MASTER fair");
        let mut words = known.trim_matches(['[', ']']).split(", ");
        words.find(|word| *word == field);
        words.next().unwrap_or_default().to_owned()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Installation {
    servers: Vec<Server>,
    sentinels: Vec<Sentinel>,
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
        let sentinels: Vec<_> = (0..SENTINELS).map(|_| Sentinel::start(master)).collect();
        let installation = Self { servers, sentinels };
        installation.is_ready();
        installation
    }

    fn is_ready(&self) {
        for sentinel in &self.sentinels {
            wait_until("the sentinel knows all", || {
                sentinel.knows("num-slaves") == "2" && sentinel.knows("num-other-sentinels") == "2"
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
        // An election that fails is held again only after twice the time of a failover.
        let longest = Duration::from_mins(3);
        let start = Instant::now();
        loop {
            let port = self.master();
            if port != old && self.server(port).info("replication", "role") == "master" {
                return self.server(port);
            }
            assert!(start.elapsed() < longest, "still no new master");
            thread::sleep(Duration::from_millis(10));
        }
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
