//! Off means off: nothing tells a server with the module, and interception off, from one without it.
//!
//! The same calls of Redisson's scripts, and of operators, on both. Then both have the same keys in the same encodings,
//! and all listeners have seen the same, byte for byte except for times: MONITOR, key events, messages, clients that
//! track keys, and replicas. There are enough waiters that the server changes the
//! encodings of queue and deadlines on the way.

use std::thread;
use std::time::Duration;

use fairlock_testing::{Client, Listener, Message, Server, WAKE_UPS, Wire, follow, wait_until};

use crate::hand::{ACQUIRED, Hand, PATIENCE};
use crate::interception::Interception;

/// The keys of `k`: itself, its queue, its deadlines.
const KEYS: [&str; 3] = ["k", "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}"];
/// How many wait.
const CROWDS: [usize; 4] = [1, 8, 20, 200];
/// Marks the end of the listeners' input.
const END: &str = "seen-until-here";
/// Numbers from here on are milliseconds since 1970.
const MOMENT: f64 = 1e12;

/// A server, and all that listens to it.
struct Side {
    hand: Hand,
    monitor: Wire,
    tracking: Wire,
    messages: Listener,
    /// MONITOR at the replica: what the server replicates.
    writes: Wire,
    _replica: Server,
    server: Server,
}

/// All that was seen while some calls were made.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    replies: Vec<String>,
    keys: Vec<String>,
    events: Vec<String>,
    commands: Vec<String>,
    invalidated: Vec<String>,
    messages: Vec<Message>,
    writes: Vec<String>,
}

impl Side {
    fn new(server: Server) -> Self {
        let mut client = server.connect();
        client.run("CONFIG SET notify-keyspace-events KEA");
        let mut tracking =
            server.wire("HELLO 3\nCLIENT TRACKING ON BCAST PREFIX k PREFIX redisson");
        tracking.until("+OK");
        let replica = Server::without_module(&[]);
        follow(&replica, &server);
        Self {
            hand: Hand::of(&server),
            monitor: monitor(&server),
            tracking,
            messages: Listener::new(server.port, WAKE_UPS),
            writes: monitor(&replica),
            _replica: replica,
            server,
        }
    }

    /// Makes some calls, and returns what the listeners saw.
    fn see(&mut self, calls: impl FnOnce(&mut Hand) -> Vec<String>) -> Seen {
        let hand = &mut self.hand;
        let mut replies = Vec::new();
        let mut events = Client::events(self.server.port, || replies = calls(hand));
        events.retain(|event| KEYS.iter().any(|key| event.ends_with(&format!(" {key}"))));
        let keys = KEYS.map(|key| self.look(key)).to_vec();
        // The prefix that is tracked. Without an expiry, because that would cause a later event.
        self.hand.client.run(&format!("SET k-{END} 1"));
        Seen {
            replies: replies.iter().map(|reply| timeless(reply)).collect(),
            keys,
            events,
            commands: commands(&mut self.monitor),
            invalidated: self.invalidated(),
            messages: self.messages.until_now(),
            writes: commands(&mut self.writes),
        }
    }

    /// The lock's keys that were invalidated, but for latches, which expire in any later step. How many a message has,
    /// depends on when the server gets to it.
    fn invalidated(&mut self) -> Vec<String> {
        let mut keys = self.tracking.until(END);
        keys.retain(|line| KEYS.contains(&line.as_str()));
        keys
    }

    fn look(&mut self, key: &str) -> String {
        let client = &mut self.hand.client;
        let encoding = client.run(&format!("OBJECT ENCODING {key}"));
        let content = match key.split(':').next() {
            Some("redisson_lock_queue") => client.run(&format!("LRANGE {key} 0 -1")),
            Some("redisson_lock_timeout") => client.run(&format!("ZRANGE {key} 0 -1")),
            _ => client.run(&format!("HGETALL {key}")),
        };
        format!("{key} {encoding} {content}")
    }
}

fn monitor(server: &Server) -> Wire {
    let mut wire = server.wire("MONITOR");
    wire.until("+OK");
    wire
}

/// The commands on the lock's keys that MONITOR has shown, without times and addresses.
fn commands(monitor: &mut Wire) -> Vec<String> {
    let lines = monitor.until(END);
    let command = |line: &String| {
        let (from, command) = line.split_once("] ")?;
        let by_lua = from.ends_with("lua");
        let concerns = KEYS
            .iter()
            .any(|key| command.contains(&format!("\"{key}\"")));
        let is_asked = ["\"OBJECT\"", "\"EXISTS\""]
            .iter()
            .any(|asked| command.starts_with(asked));
        (concerns && !is_asked).then(|| format!("{by_lua} {}", timeless(command)))
    };
    lines.iter().filter_map(command).collect()
}

/// A text, but for moments.
fn timeless(text: &str) -> String {
    let words = text.split_inclusive([' ', '"', ',']);
    words
        .map(|word| {
            let bare = word.trim_end_matches([' ', '"', ',']);
            if bare.parse().is_ok_and(|number: f64| number >= MOMENT) {
                format!("<moment>{}", &word[bare.len()..])
            } else {
                word.to_owned()
            }
        })
        .collect()
}

fn owner(number: usize) -> String {
    format!("0a1b2c3d-0000-4000-8000-00000000000f:{number}")
}

/// What happens to a lock, step by step.
const STEPS: [&str; 11] = [
    "one takes it",
    "the others ask",
    "the others ask once more",
    "it goes from hand to hand",
    "the last one gives up",
    "the lease ends",
    "no client comes for a while",
    "an operator takes the head out",
    "the queue is given an expiry",
    "another takes what is free, if it may",
    "all is deleted",
];

/// A step with this many waiters, and the replies. Those to scripts may be times.
fn carry_out(step: &str, waiters: usize, hand: &mut Hand) -> Vec<String> {
    let mut asks = |n: usize| hand.lock(&owner(n), PATIENCE);
    match step {
        "one takes it" => vec![asks(0)],
        "the others ask" | "the others ask once more" => (1..=waiters)
            .map(|n| (asks(n) == ACQUIRED).to_string())
            .collect(),
        "it goes from hand to hand" => (0..waiters.min(3))
            .map(|n| {
                hand.unlock(&owner(n));
                hand.lock(&owner(n + 1), PATIENCE)
            })
            .collect(),
        "the last one gives up" => vec![hand.leave(&owner(waiters), PATIENCE)],
        "the lease ends" => {
            // A server that is kept from running for so long deletes the key at once.
            let set = hand.client.run("PEXPIRE k 100");
            hand.client.wait_for("EXISTS k", "0");
            vec![set]
        }
        "no client comes for a while" => {
            // Longer than the module once waited before it looked at such a lock.
            thread::sleep(Duration::from_millis(50));
            Vec::new()
        }
        "an operator takes the head out" => vec![hand.client.run("LPOP redisson_lock_queue:{k}")],
        "the queue is given an expiry" => KEYS[1..]
            .iter()
            .map(|key| hand.client.run(&format!("PEXPIRE {key} 600000")))
            .collect(),
        "another takes what is free, if it may" => vec![hand.try_lock(&owner(waiters + 1))],
        _ => vec![hand.client.run(&format!("DEL {}", KEYS.join(" ")))],
    }
}

#[test]
fn with_interception_off_nothing_tells_the_module_from_a_plain_server() {
    let mut sides = [
        Side::new(Server::without_module(&[])),
        Side::new(Interception::Off.server(&["--fairlock.turn", "1"])),
    ];
    for waiters in CROWDS {
        for step in STEPS {
            let carry_out = |hand: &mut Hand| carry_out(step, waiters, hand);
            let [plain, module] = sides.each_mut().map(|side| side.see(carry_out));
            assert_eq!(plain, module, "{waiters} wait: {step}");
        }
    }
    let [_, module] = &sides;
    assert_eq!(module.server.count(TRACKED), 0);
}

/// How many locks the module looks after.
const TRACKED: &str = "locks_with_waiters_or_session";

#[test]
fn a_lock_is_forgotten_when_the_last_of_ours_has_left() {
    let server = Interception::Off.server(&[]);
    let mut hand = Hand::of(&server);
    hand.takes(&owner(0));
    for n in 1..4 {
        hand.waits([&owner(n)]);
    }
    assert_eq!(server.count(TRACKED), 0);
    hand.client
        .assert_start("FAIRLOCK.ACQUIRE k ours ENQUEUE", "[4, ");
    assert_eq!(server.count(TRACKED), 1);
    hand.client.assert_reply("FAIRLOCK.CANCEL k ours", "1");
    assert_eq!(server.count(TRACKED), 0);
}

#[test]
fn switched_off_it_forgets_what_only_scripts_use_and_switched_on_it_finds_that_at_the_next_call() {
    let server = Interception::On.server(&[]);
    let mut hand = Hand::of(&server);
    hand.takes(&owner(0));
    hand.waits([&owner(1)]);
    assert_eq!(server.count(TRACKED), 1);
    hand.client.run("CONFIG SET fairlock.intercept-eval no");
    wait_until("it is forgotten", || server.count(TRACKED) == 0);
    hand.waits([&owner(2)]);
    assert_eq!(server.count(TRACKED), 0);
    hand.client.run("CONFIG SET fairlock.intercept-eval yes");
    hand.waits([&owner(2)]);
    assert_eq!(server.count(TRACKED), 1);
    for n in 0..2 {
        hand.unlock(&owner(n));
        hand.takes(&owner(n + 1));
    }
}
