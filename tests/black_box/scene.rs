//! One lock with its holder and two waiters, and what it looks like when the head's turn has come.

use std::fs;

use fairlock_testing::{Blocked, Client, Listener, Server, wait_until};

/// Milliseconds; long enough for no turn to end while a test looks.
const TURN: i64 = 60_000;
/// What every scene's server is started with.
pub const OPTIONS: &[&str] = &["--fairlock.turn", "60000", "--enable-debug-command", "yes"];

/// Options by which no write that was replied to is lost.
pub const AOF: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// The waiters of `k`, in order.
pub const QUEUE: &str = "LRANGE redisson_lock_queue:{k} 0 -1";
/// The owners with a deadline, the earliest first.
pub const DEADLINES: &str = "ZRANGE redisson_lock_timeout:{k} 0 -1";

/// The waiter that is next.
pub enum Head {
    Blocked(Blocked),
    Polling(Listener),
}

/// `k` is held by `a` for ten minutes; `b` and then `c` wait.
pub struct Scene {
    pub server: Server,
    /// Looks.
    pub client: Client,
    /// Takes the lock away.
    pub other: Client,
    pub head: Head,
    pub next: Blocked,
}

impl Scene {
    /// `polling`: the head does not block.
    pub fn new(options: &[&str], polling: bool) -> Self {
        let server = Server::with(&[OPTIONS, options].concat());
        let (mut client, other) = (server.connect(), server.connect());
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        let head = if polling {
            let listener = Listener::new(server.port, "redisson_lock__channel:{k}:b");
            client.assert_start("FAIRLOCK.ACQUIRE k b ENQUEUE PATIENCE 600000", "[1, ");
            Head::Polling(listener)
        } else {
            Head::Blocked(server.block("FAIRLOCK.ACQUIRE k b LEASE 600000"))
        };
        let next = server.block("FAIRLOCK.ACQUIRE k c LEASE 600000");
        Self {
            server,
            client,
            other,
            head,
            next,
        }
    }

    /// Runs the next command.
    #[track_caller]
    pub fn step(&mut self, command: &str) {
        let reply = self.other.run(command);
        assert!(!reply.starts_with("(error)"), "{command}: {reply}");
    }

    /// No waiter's turn has started.
    #[track_caller]
    pub fn no_waiter_is_served(&mut self) {
        self.client.assert_reply("EXISTS k", "1");
        let reply = self.client.run("FAIRLOCK.ACQUIRE k d NOWAIT");
        assert!(
            reply == "(nil)" || reply.starts_with("(error) WRONGTYPE "),
            "{reply}"
        );
        match &self.head {
            Head::Blocked(_) => assert_eq!(self.server.blocked(), 2),
            Head::Polling(listener) => {
                assert_eq!(self.server.blocked(), 1);
                assert!(listener.is_quiet());
            }
        }
    }

    /// The turn of `b` has started, before anything else could: the next command shows it. `c`
    /// waits until `b` releases. `since` is the server's time before the lock became free.
    #[track_caller]
    pub fn the_head_is_served(self, since: i64) {
        let Self {
            server,
            mut client,
            other: _other,
            head,
            next,
        } = self;
        match head {
            Head::Blocked(waiter) => is_the_holder(&mut client, waiter),
            Head::Polling(listener) => is_woken(&mut client, &listener, since),
        }
        client.assert_reply(QUEUE, "[c]");
        client.assert_reply(DEADLINES, "[c]");
        assert_eq!(server.blocked(), 1);
        assert!(!next.is_done());
        client.assert_reply("FAIRLOCK.RELEASE k b", "0");
        assert_eq!(next.int(), client.token("k"));
        assert_eq!(client.holders("k"), "[c, 1]");
        client.assert_reply(QUEUE, "[]");
        client.assert_reply(DEADLINES, "[]");
    }

    /// Waits until the server itself has started the turn of `b`: it gets no command in between.
    #[track_caller]
    pub fn the_head_has_its_turn(&self) {
        wait_until("the head's turn has started", || match &self.head {
            Head::Blocked(waiter) => waiter.is_done(),
            Head::Polling(listener) => !listener.is_quiet(),
        });
    }
}

/// A blocked head holds the lock, and was told.
#[track_caller]
fn is_the_holder(client: &mut Client, waiter: Blocked) {
    assert_eq!(client.holders("k"), "[b, 1]");
    assert!((500_000..=600_000).contains(&client.int("PTTL k")));
    assert_eq!(waiter.int(), client.token("k"));
}

/// A polling head was told once and has a turn from now; it comes.
#[track_caller]
fn is_woken(client: &mut Client, listener: &Listener, since: i64) {
    client.assert_reply("EXISTS k", "0");
    client.assert_reply(QUEUE, "[b, c]");
    let left = left(client, 0);
    let passed = client.now() - since;
    assert!((TURN - passed - 1..=TURN).contains(&left), "{left}");
    assert_eq!(listener.message(), "0");
    client.assert_reply("FAIRLOCK.ACQUIRE k d NOWAIT", "(nil)");
    client.int("FAIRLOCK.ACQUIRE k b ENQUEUE LEASE 600000");
    assert!(listener.is_quiet());
}

/// Milliseconds that the waiter of `k` at a 0-based position has to ask again.
#[track_caller]
pub fn left(client: &mut Client, index: usize) -> i64 {
    let waiter = client.run(&format!("FAIRLOCK.QUEUE k LIMIT {index} 1"));
    let left = waiter.split(", ").nth(2);
    let left = left.and_then(|left| left.parse().ok());
    left.unwrap_or_else(|| panic!("no number in {waiter}"))
}

/// The owners in a reply of QUEUE or HOLDERS, in order.
pub fn owners(reply: &str) -> Vec<String> {
    let rows = reply.trim_matches(['[', ']']).split("], [");
    let owners = rows.filter_map(|row| row.split(", ").next());
    let owners = owners.filter(|owner| !owner.is_empty());
    owners.map(str::to_owned).collect()
}

/// What a server has written to its append-only file.
pub fn appended(server: &Server) -> String {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("a folder");
    let texts = files.map(|file| fs::read(file.expect("a file").path()).expect("readable"));
    let texts = texts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    texts.collect()
}
