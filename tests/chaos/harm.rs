//! Carries a plan out: does to the server, its data and its clients what the plan says, and writes
//! down from when to when.

use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock_testing::resp::Reply;
use fairlock_testing::{Server, have_changed_roles, wait_until};

use crate::history::{Harm, Micros, Part};
use crate::plan::{Act, Disk, OPTIONS, Plan};
use crate::wire::Wire;
use crate::world::{World, key, lock_name, owner};

/// A connection that the server still takes for open, and until when.
struct HalfOpen {
    client: usize,
    from: Micros,
    until: Micros,
    _socket: TcpStream,
}

/// Carries out the faults.
pub struct Harmer {
    world: Arc<World>,
    disk: Disk,
    /// The master, always there but while it is being restarted.
    master: Option<Server>,
    replica: Option<Server>,
    half_open: Vec<HalfOpen>,
    clock: i64,
    /// Snapshots: before the last one was begun.
    saved: Micros,
}

impl Harmer {
    pub fn new(world: Arc<World>, disk: Disk, master: Server, replica: Option<Server>) -> Self {
        world.set_master(&master);
        Self {
            world,
            disk,
            master: Some(master),
            replica,
            half_open: Vec::new(),
            clock: 0,
            saved: 0,
        }
    }

    pub fn master(&self) -> &Server {
        self.master.as_ref().expect("a master")
    }

    /// Does all of it, in order, and repairs what does not repair itself.
    pub fn carry_out(&mut self, plan: &Plan) {
        let began = self.world.recorder.now();
        for (at, act) in plan {
            let due = began + at * 1000;
            while self.world.recorder.now() < due {
                self.keep_watch();
                thread::sleep(Duration::from_millis(5));
            }
            self.act(*act);
        }
        while !self.half_open.is_empty() {
            self.keep_watch();
            thread::sleep(Duration::from_millis(5));
        }
        if self.clock != 0 {
            self.set_clock(0);
        }
    }

    fn act(&mut self, (harm, ms): Act) {
        let from = self.world.recorder.now();
        let mut done = harm;
        let while_it_lasts = || thread::sleep(Duration::from_millis(ms));
        match harm {
            Harm::Kill { .. } => done = self.kill(),
            Harm::Pause => self.master().while_stopped(while_it_lasts),
            Harm::ClientKill { client } => {
                // It may have none at the moment, and then nothing is done to it. A server that was restarted numbers
                // its connections anew.
                let Some((id, address)) = self.world.connection_of(client) else {
                    return;
                };
                let killed = self.run(&["CLIENT", "KILL", "ID", &id.to_string(), "ADDR", &address]);
                if killed != Reply::Int(1) {
                    return;
                }
            }
            Harm::HalfOpen { client } => return self.cut(client, ms),
            Harm::ClockStep { seconds } => return self.set_clock(seconds),
            Harm::FlushAll => self.order(&["FLUSHALL"]),
            Harm::Delete { lock, key } => self.order(&["DEL", &key_of(lock, key)]),
            Harm::Break { lock, client } => {
                let (lock_name, one) = (lock_name(lock), client.map(owner));
                let mut words = vec!["FAIRLOCK.BREAK", &lock_name];
                words.extend(one.iter().flat_map(|owner| ["OWNER", owner]));
                self.order(&words);
            }
            Harm::Config { choice } => {
                let (option, value) = OPTIONS[choice];
                self.run(&["CONFIG", "SET", option, value]);
            }
            Harm::OutOfMemory => {
                self.run(&["CONFIG", "SET", "maxmemory", "1"]);
                while_it_lasts();
                self.run(&["CONFIG", "SET", "maxmemory", "0"]);
            }
            Harm::RewriteAof => {
                self.run(&["BGREWRITEAOF"]);
            }
            Harm::Snapshot => self.snapshot(from),
            Harm::Failover => self.fail_over(),
        }
        self.world.recorder.fault(done, from);
    }

    /// A command at the master.
    fn run(&self, words: &[&str]) -> Reply {
        let wire = Wire::connect(self.master().port);
        let reply = wire.and_then(|mut wire| wire.ask(words));
        reply.unwrap_or_else(|_| panic!("the server is gone at {words:?}"))
    }

    /// A command that is certainly carried out.
    fn order(&self, words: &[&str]) {
        let reply = self.run(words);
        assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
    }

    /// What has to be done between faults.
    fn keep_watch(&mut self) {
        let recorder = &self.world.recorder;
        let now = recorder.now();
        self.half_open.retain(|cut| {
            let is_open = cut.until > now;
            if !is_open {
                let client = cut.client;
                recorder.fault(Harm::HalfOpen { client }, cut.from);
            }
            is_open
        });
    }

    /// Kills the server and starts it again on what is on disk.
    fn kill(&mut self) -> Harm {
        let mut server = self.master.take().expect("a master");
        let replies_early = server.connect().run("CONFIG GET io-threads") != "[io-threads, 1]";
        let asked = self.world.recorder.now();
        server.let_it_write();
        server.signal("KILL");
        server.exit_code();
        let lost_since = match self.disk {
            // With I/O threads a server may have replied to what it had not written.
            Disk::Always if replies_early => Some(asked),
            Disk::Always | Disk::Replica => None,
            Disk::Snapshots => Some(self.saved),
        };
        let server = server.kill_and_restart();
        self.world.set_master(&server);
        self.master = Some(server);
        Harm::Kill { lost_since }
    }

    fn snapshot(&mut self, from: Micros) {
        let server = self.master();
        let is_idle = || server.info("persistence", "rdb_bgsave_in_progress") == "0";
        // Not while the append-only file is rewritten.
        wait_until("a snapshot is begun", || {
            !matches!(self.run(&["BGSAVE"]), Reply::Error(_))
        });
        wait_until("the snapshot is there", is_idle);
        if server.info("persistence", "rdb_last_bgsave_status") == "ok" {
            self.saved = from;
        }
    }

    fn cut(&mut self, client: usize, ms: u64) {
        let from = self.world.recorder.now();
        if let Some(socket) = self.world.cut(client) {
            self.half_open.push(HalfOpen {
                client,
                from,
                until: from + ms * 1000,
                _socket: socket,
            });
        }
    }

    fn set_clock(&mut self, seconds: i64) {
        let from = self.world.recorder.now();
        self.world.set_clock(seconds);
        for server in self.master.iter().chain(&self.replica) {
            server.set_clock(seconds);
            server.connect().run("PING");
        }
        let step = seconds - self.clock;
        self.clock = seconds;
        self.world
            .recorder
            .fault(Harm::ClockStep { seconds: step }, from);
    }

    /// The replica becomes the master, and the master its replica.
    fn fail_over(&mut self) {
        let (old, new) = (self.master.take(), self.replica.take());
        let (old, new) = (old.expect("a master"), new.expect("a replica"));
        let command = format!("FAILOVER TO 127.0.0.1 {}", new.port);
        let mut client = old.connect();
        wait_until("the failover begins", || client.run(&command) == "OK");
        have_changed_roles(&old, &new);
        self.world.set_master(&new);
        wait_until("the old master follows", || {
            old.info("replication", "master_link_status") == "up"
        });
        (self.master, self.replica) = (Some(new), Some(old));
    }
}

fn key_of(lock: usize, part: Part) -> String {
    match part {
        Part::Lock => lock_name(lock),
        Part::Queue => key("queue", lock),
        Part::Deadlines => key("timeout", lock),
        Part::Token => format!("fairlock_token:{{{}}}", lock_name(lock)),
        Part::Shared => key("shared", lock),
    }
}
