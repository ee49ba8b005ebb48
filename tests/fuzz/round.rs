//! Several clients at a time send a number of commands; then everything is checked and deleted.

use std::thread;
use std::time::{Duration, Instant};

use fairlock_testing::resp::packed;
use fairlock_testing::{Client, Dice, Server, follow, give_up, wait_until};

use crate::connection::Connection;
use crate::data::{VALUES, cancel_all, copy_folder, data, differences, dump, loaded};
use crate::grammar::FAIRLOCK;
use crate::scripts::{LIBRARY, redisson};
use crate::steps::{Material, Step, step};
use crate::words::Words;

/// Clients at a time.
const CLIENTS: usize = 8;
/// Most commands of one client without a reply. A blocked client is unblocked then.
const UNANSWERED: usize = 100;

const OPTIONS: &[&str] = &[
    "--enable-debug-command",
    "yes",
    "--databases",
    "4",
    "--slowlog-max-len",
    "0",
    "--latency-tracking",
    "no",
    "--acllog-max-len",
    "0",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-backlog-size",
    "1mb",
    "--client-output-buffer-limit",
    "replica 0 0 0",
    "--auto-aof-rewrite-min-size",
    "32mb",
];

/// The servers, and what commands are made from.
pub struct Stage {
    server: Server,
    replica: Server,
    control: Client,
    material: Material,
    clients: Vec<Connection>,
    /// Connections that others have replaced. The one that was to kill them may have ended first.
    former: Vec<Connection>,
}

impl Stage {
    pub fn new() -> Self {
        let options = [OPTIONS, &["--appendonly", "yes", "--appendfsync", "no"]].concat();
        let (server, replica) = (Server::with(&options), Server::with(OPTIONS));
        let mut control = server.connect();
        let forms = FAIRLOCK.iter().filter_map(|form| form.split_once(' '));
        control.assert_calls_all(forms.map(|(_, call)| call));
        follow(&replica, &server);
        let material = Material {
            dumps: VALUES
                .iter()
                .map(|value| dump(&mut control, value))
                .collect(),
            scripts: redisson(),
            rubbish: 0,
        };
        for user in [
            "reader on >x ~* +@read +fairlock.queue +fairlock.holders +fairlock.info +fairlock.locks",
            "limited on >x %R~k ~l* &* +@all -fairlock.break -eval",
            "none on >x",
        ] {
            control.run(&format!("ACL SETUSER {user} +auth"));
        }
        Self {
            server,
            replica,
            control,
            material,
            clients: Vec::new(),
            former: Vec::new(),
        }
    }

    /// Sends random commands until all are answered; returns their number.
    pub fn play(&mut self, seed: u64, commands: usize) -> usize {
        println!("round FUZZ_SEED={seed}");
        let mut dice = Dice::new(seed, 0);
        self.prepare(&mut dice);
        let mut sent = 0;
        while sent < commands {
            let client = dice.usize(..CLIENTS);
            self.make_room(client);
            match step(&mut dice, &self.material) {
                Step::Send(commands) => {
                    sent += commands.len();
                    self.clients[client].send(commands);
                }
                Step::Unanswered(commands) => {
                    sent += commands.len() + 2;
                    self.send_unanswered(client, &commands);
                }
                Step::HangUp => {
                    self.clients[client].close();
                    self.replace(client);
                }
                Step::Kill => {
                    let other = dice.usize(..CLIENTS);
                    sent += 1;
                    self.kill(client, other);
                }
                Step::Unblock(error) => self.unblock(client, error),
            }
        }
        self.wait_for_answers();
        sent
    }

    fn prepare(&mut self, dice: &mut Dice) {
        self.material.rubbish = dice.usize(3..30);
        let intercept = if dice.bool() { "yes" } else { "no" };
        let turn = dice.usize(1..100);
        let set = format!("fairlock.intercept-eval {intercept} fairlock.turn {turn}");
        assert_eq!(self.control.run(&format!("CONFIG SET {set}")), "OK");
        for script in &self.material.scripts {
            if let Some(text) = &script.text {
                let loaded = self.control.raw(&[b"SCRIPT", b"LOAD", text]);
                loaded.expect("loaded");
            }
        }
        let library = LIBRARY.as_bytes();
        let loaded = self
            .control
            .raw(&[b"FUNCTION", b"LOAD", b"REPLACE", library]);
        loaded.expect("loaded");
        let port = self.server.port;
        self.clients = (0..CLIENTS).map(|_| Connection::new(port)).collect();
    }

    /// A client with too many commands under way is blocked, or slow.
    fn make_room(&mut self, client: usize) {
        let start = Instant::now();
        while self.clients[client].unanswered() > UNANSWERED {
            self.nudge(client, start);
        }
        self.clients[client].check();
    }

    /// Lets a client that may be blocked go on.
    fn nudge(&mut self, client: usize, start: Instant) {
        let connection = &self.clients[client];
        connection.check();
        assert!(
            start.elapsed() < give_up(),
            "client {} is not answered: {}",
            connection.id,
            connection.oldest()
        );
        self.unblock(client, false);
        thread::sleep(Duration::from_micros(100));
    }

    /// Unblocks a client that is blocked. No client may be postponed by a pause then: servers up to 7.0 do not survive
    /// that one of these is unblocked.
    fn unblock(&mut self, client: usize, error: bool) {
        let id = self.clients[client].id.to_string();
        let way = if error { "ERROR" } else { "TIMEOUT" };
        self.control
            .run_many(["CLIENT UNPAUSE", &format!("CLIENT UNBLOCK {id} {way}")]);
    }

    fn send_unanswered(&mut self, client: usize, commands: &[Words]) {
        let connection = &mut self.clients[client];
        connection.write(b"CLIENT REPLY OFF\r\n");
        let bytes: Vec<u8> = commands.iter().flat_map(|words| packed(words)).collect();
        connection.write(&bytes);
        let on = ["CLIENT", "REPLY", "ON"];
        connection.send(vec![on.map(|word| word.as_bytes().to_vec()).to_vec()]);
    }

    /// One client kills another. It gets a reply unless it kills itself.
    fn kill(&mut self, client: usize, other: usize) {
        let id = self.clients[other].id;
        let kill = format!("CLIENT KILL ID {id} SKIPME no");
        let words = kill.split(' ').map(|word| word.as_bytes().to_vec());
        self.clients[client].send(vec![words.collect()]);
        self.replace(other);
    }

    /// A new connection takes the place of one that is to be closed.
    fn replace(&mut self, client: usize) {
        let new = Connection::new(self.server.port);
        self.former
            .push(std::mem::replace(&mut self.clients[client], new));
    }

    fn wait_for_answers(&mut self) {
        let start = Instant::now();
        for client in 0..CLIENTS {
            while self.clients[client].unanswered() > 0 {
                self.nudge(client, start);
            }
            self.clients[client].check();
        }
        self.control.run("CLIENT UNPAUSE");
        // The client that limited the memory may have been killed. An evicted queue comes back while a client waits,
        // and is evicted again.
        self.control.run("CONFIG SET maxmemory 0");
    }

    /// The replica has what the server has.
    pub fn check_replica(&mut self) {
        let mut replica = self.replica.connect();
        let start = Instant::now();
        loop {
            let before = data(&mut self.control);
            let its = data(&mut replica);
            let after = data(&mut self.control);
            let differences = differences([&before, &after], &its, self.control.now());
            if differences.is_empty() {
                break;
            }
            assert!(
                start.elapsed() < give_up(),
                "the replica has something else than its master: {differences:#?}"
            );
        }
    }

    /// A server without the module reads from the append-only file what this one has.
    pub fn check_append_only_file(&mut self) {
        let before = data(&mut self.control);
        let copy = tempfile::tempdir().expect("a temporary directory");
        let folder = copy.path().join("appendonlydir");
        copy_folder(&self.server.dir().join("appendonlydir"), &folder);
        let after = data(&mut self.control);
        let read = loaded(copy.path());
        // Keys that have expired by now may have done so during the load.
        let differences = differences([&before, &after], &read, self.control.now());
        assert!(
            differences.is_empty(),
            "read from the file: {differences:#?}"
        );
    }

    /// Deletes everything; the bytes that the server still keeps.
    pub fn clean(&mut self) -> i64 {
        for connection in self.clients.drain(..).chain(self.former.drain(..)) {
            connection.close();
        }
        for command in [
            "CONFIG SET maxmemory 0 maxmemory-policy noeviction fairlock.lease 30000",
            "CONFIG SET fairlock.patience 300000 fairlock.turn 5000 fairlock.max-waiters 100000",
            "CONFIG SET fairlock.pubsub auto fairlock.intercept-eval no",
            "CONFIG SET fairlock.clock-skew 10000 notify-keyspace-events KEA",
            "DEBUG SET-ACTIVE-EXPIRE 1",
            "SCRIPT FLUSH",
            "FUNCTION FLUSH",
            "FLUSHALL",
            "CONFIG RESETSTAT",
        ] {
            assert_eq!(self.control.run(command), "OK", "{command}");
        }
        let gauges = [
            ("clients", "connected_clients", "2"),
            ("fairlock", "fairlock_blocked_clients", "0"),
            ("fairlock", "fairlock_session_locks", "0"),
        ];
        for (section, gauge, expected) in gauges {
            wait_until(gauge, || self.server.info(section, gauge) == expected);
        }
        wait_until("nothing is left", || {
            cancel_all(&mut self.control);
            data(&mut self.control).is_empty()
                && self.server.count("locks_with_waiters_or_session") == 0
        });
        assert!(!self.server.log().contains("panic"), "the server's log");
        let kept = self.server.info("memory", "used_memory_dataset");
        kept.parse().expect("a number of bytes")
    }
}
