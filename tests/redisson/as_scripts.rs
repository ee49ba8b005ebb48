//! The commands beside their scripts (`clients/lua`): random calls, the same on two servers, get the same replies and
//! leave the same holder, queue and messages. One server has the module and is sent the commands; the other has no
//! module and runs the scripts.
//!
//! Not compared: deadlines, which are scores for other programs; and, once a lease or a patience has ended or another
//! client has changed the keys, when a wake-up is sent: a script notices at the next ask, the module at once.
//!
//! `SCRIPT_CASES` says how many sequences of calls there are, `SCRIPT_SEED` from which seed on.

use std::cmp::Ordering;
use std::fmt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fairlock_testing::cluster::Cluster;
use fairlock_testing::{
    Client, Dice, Listener, Message, Server, WAKE_UPS, Wire, lua, show, wait_until,
};
use redis::Value;

use crate::as_lua;
use crate::hand::{ACQUIRED, Hand, PATIENCE};

/// A patience in milliseconds that no test outlasts.
const LONG: &str = "600000";

/// Calls on one lock, which is new then.
const CALLS: usize = 30;
/// Milliseconds by which times may differ from server to server. To it comes what the calls take.
const CLOCK: u128 = 1500;
/// Longer than any short lease or patience that calls ask for, and than the turn of a waiter with a short patience.
const NAP: Duration = Duration::from_millis(300);
const SHORT: &str = "40";
/// A silent head makes the module wake those behind it after a tenth of its turn of 5 s.
const QUIET: Duration = Duration::from_millis(450);
/// What PTTL says of a key that is not there.
const NO_KEY: i64 = -2;
/// Locks with braces and without.
const LOCKS: [&str; 3] = ["k?", "{k?}", "a{k?}b"];
const OWNERS: [&str; 5] = ["a", "b", "c", "d", "the owner: d"];
/// Times and tokens that are none, or none that is allowed.
const WRONG: [&str; 8] = [
    "",
    "0",
    "-1",
    "1.5",
    "x",
    "007",
    "9223372036854775808",
    "1e3",
];

/// In front of a script, it makes a server pass numbers as Redis 7.2.0 to 7.2.4 do: with an exponent where that is
/// shorter, such as `1e+8` (redis 13113), which PEXPIRE refuses. Here all great numbers have one.
const EXPONENTS: &str = "
local redis = setmetatable({}, { __index = redis })
for _, name in ipairs({ 'call', 'pcall' }) do
  redis[name] = function(...)
    local words = { ... }
    for index, word in ipairs(words) do
      if type(word) == 'number' and word >= 1e8 then
        words[index] = string.format('%.17e', word)
      end
    end
    return getmetatable(redis).__index[name](unpack(words))
  end
end
";

/// One step of a sequence.
#[derive(Clone, Debug)]
enum Step {
    /// A command, without its prefix and its key. `{token}` stands for the holder's token.
    Call(Vec<String>),
    /// The same while the server's memory is full.
    CallWithFullMemory(Vec<String>),
    /// A command of another client's, in which `{lock}`, `{queue}`, `{deadlines}` stand for the keys. Then a client
    /// asks, because scripts notice only then.
    Foreign(&'static str),
    /// If the queue is empty, an owner with a short lease and a short patience asks. Some time passes, in which the
    /// holder's lease may end; then another asks.
    Nap { ends: bool },
}

/// What a server shows of one step.
#[derive(Clone, Debug)]
struct Seen {
    reply: String,
    /// A time in the reply.
    retry_after: i64,
    holder: Vec<String>,
    queue: String,
    waiters: Vec<String>,
    lease_left: i64,
}

/// A server and how it is called.
struct Side {
    _server: Server,
    client: Client,
    listener: Listener,
    by_script: bool,
    /// Digests of the scripts, and of those that are called in their place.
    instead: Vec<(String, String)>,
    /// The last token of the lock.
    token: i64,
}

#[test]
fn scripts_do_what_the_commands_do() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let cases: u64 = setting("SCRIPT_CASES").unwrap_or(300);
    let seed: u64 = setting("SCRIPT_SEED").unwrap_or(1);
    println!("{cases} sequences from seed {seed} on");
    let mut sides = [
        Side::new(Server::start(), false),
        Side::new(Server::without_module(&[]), true).with_exponents(),
    ];
    let mut heard = 0;
    for case in seed..seed + cases {
        heard += compare(&mut sides, case);
    }
    println!("messages were compared in {heard} sequences");
    assert!(heard > cases / 8, "{heard} of {cases}");
}

#[test]
fn what_needs_the_module_is_refused_in_a_script() {
    let server = Server::without_module(&[]);
    let mut client = server.connect();
    lua::load(&mut client);
    for words in [
        "ACQUIRE k a",
        "ACQUIRE k a WAIT 5",
        "ACQUIRE k a ENQUEUE SESSION",
        "ACQUIRE k a ENQUEUE SHARED",
        "ACQUIRE k a NOWAIT SHARED 1",
        "ACQUIRE k * NOWAIT",
        "RELEASE k *",
        "RENEW k *",
        "CANCEL k *",
    ] {
        let reply = as_lua::call(&mut client, words);
        assert!(reply.starts_with("(error) ERR "), "{words}: {reply}");
        let is_explained = reply.contains("needs the fairlock module") || words.contains('*');
        assert!(is_explained, "{words}: {reply}");
    }
    client.assert_reply("DBSIZE", "0");
}

/// A master of a cluster, alone: the head of the queue is woken by SPUBLISH, and no error is counted.
#[test]
fn scripts_wake_by_spublish_in_a_cluster() {
    let cluster = Cluster::without_module(1, &[]);
    let server = &cluster.masters[0];
    let mut client = server.connect();
    lua::load(&mut client);
    let mut waiter = Wire::new(server.port);
    waiter.send("SSUBSCRIBE redisson_lock__channel:{k}:b");
    waiter.until("ssubscribe");
    // Before 7.2 a server has an error for what clients say of themselves.
    client.run("CONFIG RESETSTAT");
    let mut call = |words| as_lua::call(&mut client, words);
    assert!(call("ACQUIRE k a NOWAIT").parse::<i64>().is_ok());
    assert!(call("ACQUIRE k b ENQUEUE").starts_with("[1, "));
    assert_eq!(call("RELEASE k a"), "0");
    waiter.until("smessage");
    assert!(call("ACQUIRE k b ENQUEUE").parse::<i64>().is_ok());
    assert!(!client.text("INFO errorstats").contains("errorstat_"));
}

/// Redisson's scripts and the packages' in one queue of a server without the module.
#[test]
fn redissons_scripts_drop_no_waiter_of_the_packages() {
    let server = Server::without_module(&[]);
    let mut hand = Hand::of(&server);
    lua::load(&mut hand.client);
    for seed in 1..=30 {
        let mut dice = Dice::new(seed, 0);
        hand.client.run("FLUSHALL");
        let mut handed_over = 0;
        let mut queue: Vec<String> = Vec::new();
        let mut holder = None;
        for number in 0..150 {
            match dice.index(5) {
                0 | 1 if queue.len() < 12 => {
                    let is_ours = dice.one_in(2);
                    let owner = if is_ours {
                        format!("own-{number}")
                    } else {
                        format!("jvm:{number}")
                    };
                    if ask_as(&mut hand, &owner) {
                        holder = Some(owner);
                    } else {
                        queue.push(owner);
                    }
                }
                // One that waits asks again.
                2 if !queue.is_empty() => {
                    let owner = queue[dice.index(queue.len())].clone();
                    assert!(holder.is_none() || !ask_as(&mut hand, &owner), "{owner}");
                }
                3 if queue.len() > 2 && dice.one_in(3) => {
                    let owner = queue.remove(dice.index(queue.len()));
                    if owner.starts_with("own") {
                        let words = lua::call(&["CANCEL", "k", &owner]);
                        assert_eq!(hand.client.run_words(&words), "1");
                    } else {
                        hand.leave(&owner, PATIENCE);
                    }
                }
                _ => {
                    if let Some(owner) = holder.take() {
                        give_back(&mut hand, &owner);
                    }
                    if !queue.is_empty() {
                        let head = queue.remove(0);
                        assert!(
                            ask_as(&mut hand, &head),
                            "seed {seed}: it is the turn of {head}"
                        );
                        holder = Some(head);
                        handed_over += 1;
                    }
                }
            }
            let found = hand.queue();
            assert_eq!(
                found,
                format!("[{}]", queue.join(", ")),
                "seed {seed}, step {number}"
            );
        }
        assert!(handed_over > 5, "{handed_over}");
    }
}

/// Waiters behind a dead head are woken, and dropped with it if they do not ask. A client of Redisson cannot show that
/// it lives: it keeps its place, and so do those behind it.
#[test]
fn a_dead_head_costs_redissons_clients_no_place() {
    let server = Server::without_module(&[]);
    let mut hand = Hand::of(&server);
    lua::load(&mut hand.client);
    let redissons = "0b5eb1a4-6a6f-4d5c-9d3e-2f1f3b1c7a10:7";
    assert!(ask_as(&mut hand, "own-holder"));
    assert!(!ask_as(&mut hand, "own-dead-1"));
    assert!(!ask_as(&mut hand, "own-dead-2"));
    assert_ne!(hand.lock(redissons, PATIENCE), ACQUIRED);
    assert!(!ask_as(&mut hand, "own-last"));
    // A head that was silent for a fifth of its turn: those behind it are woken.
    hand_over_and_ask(&mut hand, "own-holder", ("own-dead-1", 4000), "own-last");
    assert!(hand.patience_left("own-dead-2") <= 4000);
    wait_until("the turn of the head is over", || {
        hand.patience_left("own-dead-2") < 0
    });
    assert!(!ask_as(&mut hand, "own-last"));
    assert_eq!(hand.queue(), format!("[{redissons}, own-last]"));
    assert_eq!(hand.lock(redissons, PATIENCE), ACQUIRED);
}

#[test]
fn who_asks_late_in_the_turn_of_a_dead_head_costs_no_living_waiter_its_place() {
    let server = Server::without_module(&[]);
    let mut hand = Hand::of(&server);
    lua::load(&mut hand.client);
    assert!(ask_as(&mut hand, "holder"));
    for waiter in ["dead", "living", "last"] {
        assert!(!ask_as(&mut hand, waiter));
    }
    // Of the 5 s of its turn, half a second is left when the first asks.
    hand_over_and_ask(&mut hand, "holder", ("dead", 500), "last");
    wait_until("the turn of the head is over", || {
        hand.patience_left("dead") < 0
    });
    assert!(!ask_as(&mut hand, "last"));
    assert_eq!(hand.queue(), "[living, last]");
    assert!(ask_as(&mut hand, "living"));
}

/// A holder gives the lock back. A waiter asks, and must wait, with this many milliseconds of the head's turn left.
/// In one transaction: however slow the machine is, no time passes between.
fn hand_over_and_ask(hand: &mut Hand, holder: &str, (head, left): (&str, u64), owner: &str) {
    const SET: &str = "local time = redis.call('TIME')
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        return redis.call('ZADD', KEYS[1], 'XX', 'CH', now + ARGV[1], ARGV[2])";
    let give_back = lua::call(&["RELEASE", "k", holder]);
    let set = ["EVAL", SET, "1", "redisson_lock_timeout:{k}"].map(str::to_owned);
    let set = [&set[..], &[left.to_string(), head.to_owned()]].concat();
    let ask = lua::call(&["ACQUIRE", "k", owner, "ENQUEUE", "PATIENCE", LONG, "ONCE"]);
    hand.client.assert_reply("MULTI", "OK");
    for call in [give_back, set, ask] {
        assert_eq!(hand.client.run_words(&call), "QUEUED");
    }
    let replies = hand.client.run("EXEC");
    assert!(replies.starts_with("[0, 1, ["), "{replies}");
}

/// Asks for `k` by the scripts of the owner's kind; whether it has it.
fn ask_as(hand: &mut Hand, owner: &str) -> bool {
    if owner.starts_with("jvm") {
        return hand.lock(owner, PATIENCE) == ACQUIRED;
    }
    let words = ["ACQUIRE", "k", owner, "ENQUEUE", "PATIENCE", LONG, "ONCE"];
    let reply = hand.client.run_words(&lua::call(&words));
    assert!(!reply.starts_with("(error)"), "{reply}");
    !reply.starts_with('[')
}

fn give_back(hand: &mut Hand, owner: &str) {
    if owner.starts_with("jvm") {
        hand.unlock(owner);
    } else {
        let words = lua::call(&["RELEASE", "k", owner]);
        assert_eq!(hand.client.run_words(&words), "0", "{owner}");
    }
}

/// The example of the scripts' page, as a shell runs it.
#[test]
fn the_example_of_the_scripts_page_runs() {
    let server = Server::without_module(&[]);
    let folder = fairlock_testing::paths::root().join("clients/lua");
    let page = std::fs::read_to_string(folder.join("README.md")).expect("the page");
    let (_, example) = page.split_once("```sh\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let port = format!(
        "redis-cli() {{ command redis-cli -p {} \"$@\"; }}\n",
        server.port
    );
    let shell = Command::new("bash")
        .args(["-euc", &(port + example)])
        .current_dir(&folder)
        .output();
    let said = String::from_utf8(shell.expect("a shell").stdout).expect("text");
    let numbers: Vec<i64> = said
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    let [first, position, retry_after, left, second] = numbers[..] else {
        panic!("{said}");
    };
    assert!(
        (position, left) == (1, 0) && (1..=30_000).contains(&retry_after),
        "{said}"
    );
    assert!(second > first && first > 0, "{said}");
}

/// One sequence; whether its messages could be compared.
fn compare(sides: &mut [Side; 2], case: u64) -> u64 {
    let mut dice = Dice::new(case, 0);
    let keys = lua::keys(&dice.pick(&LOCKS).replace('?', &case.to_string()));
    for side in &mut *sides {
        side.begin();
    }
    let mut took = Duration::ZERO;
    let mut is_calm = true;
    let mut told = Vec::new();
    for _ in 0..CALLS {
        let step = step(&mut dice);
        is_calm &= matches!(step, Step::Call(_));
        if let Step::Nap { ends } = step {
            for side in &mut *sides {
                side.tire(ends, &keys);
            }
            sleep(NAP);
        }
        let start = Instant::now();
        let [command, script] = sides.each_mut().map(|side| side.take(&step, &keys));
        took += start.elapsed();
        told.push(format!("{step:?}\n  command {command}\n  script  {script}"));
        assert!(
            command.is_like(&script, CLOCK + 2 * took.as_millis()),
            "seed {case}, {}:\n{}",
            keys[0],
            told.join("\n")
        );
    }
    let [command, script] = sides.each_ref().map(|side| side.heard(&keys));
    if took >= QUIET {
        // A head may have been silent for long at one server and not at another.
        return 0;
    }
    let are_same = if is_calm {
        command == script
    } else {
        are_among(&script, &command)
    };
    let heard = [command, script];
    assert!(
        are_same,
        "seed {case}, {}:\n{}\n{heard:#?}",
        keys[0],
        told.join("\n")
    );
    is_calm.into()
}

/// Whether each message was sent at the other side as well.
fn are_among(messages: &[Message], others: &[Message]) -> bool {
    messages.iter().all(|message| others.contains(message))
}

fn step(dice: &mut Dice) -> Step {
    match dice.index(80) {
        0 => Step::Nap {
            ends: dice.one_in(2),
        },
        1 => Step::Foreign(dice.pick(&FOREIGN)),
        2 => {
            let words = dice.pick(&RIGHT).split(' ');
            let owner = dice.pick(&OWNERS);
            Step::CallWithFullMemory(words.map(|word| word.replace('?', owner)).collect())
        }
        _ => Step::Call(call(dice)),
    }
}

/// Calls without a mistake: with full memory, the server refuses a command before the module has seen its arguments.
const RIGHT: [&str; 6] = [
    "ACQUIRE ? ENQUEUE",
    "ACQUIRE ? NOWAIT ONCE",
    "RELEASE ?",
    "RELEASE ? ALL",
    "RENEW ?",
    "CANCEL ?",
];

fn ask(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

/// What other clients do to the keys.
const FOREIGN: [&str; 9] = [
    "DEL {lock}",
    "PERSIST {lock}",
    "HSET {lock} field value",
    "HSET {lock} a 9223372036854775808",
    "HSET {lock} other 1",
    "HDEL {lock} a",
    "SET {lock} x",
    "SET {queue} x",
    "SET {deadlines} x",
];

fn call(dice: &mut Dice) -> Vec<String> {
    let owner = dice.pick(&OWNERS);
    let mut words = match dice.index(10) {
        0..5 => acquire(owner, dice),
        5..8 => release(owner, dice),
        8 => renew(owner, dice),
        _ => vec!["CANCEL", owner],
    };
    // Wrong in all ways.
    match dice.index(150) {
        // Without a way to wait the command would block.
        0 if words.len() != 3 => drop(words.pop()),
        1 => words.push("MORE"),
        2 => words[1] = "",
        3 => words.push(words[words.len() - 1]),
        _ => (),
    }
    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    if words.len() > 1 && dice.one_in(100) {
        words[1] = "o".repeat(dice.pick(&[256, 257]));
    }
    words
}

fn acquire(owner: &'static str, dice: &mut Dice) -> Vec<&'static str> {
    let mut words = vec!["ACQUIRE", owner];
    let way = dice.pick(&["ENQUEUE", "ENQUEUE", "enqueue", "NOWAIT"]);
    words.push(way);
    if dice.one_in(3) {
        let right = ["10000", "20000", "60000", "100000000", "4503599627370496"];
        words.extend(["LEASE", time(dice, &right)]);
    }
    if dice.one_in(3) {
        words.extend([
            "PATIENCE",
            time(
                dice,
                &["6000", "10000", "600000", "100000000", "4503599627370496"],
            ),
        ]);
    }
    if dice.one_in(3) {
        words.push(dice.pick(&["ONCE", "Once"]));
    }
    words
}

fn release(owner: &'static str, dice: &mut Dice) -> Vec<&'static str> {
    let mut words = vec!["RELEASE", owner];
    if dice.one_in(4) {
        words.push("ALL");
    }
    if dice.one_in(4) {
        words.extend([
            "TOKEN",
            time(dice, &["{token}", "{token}", "1", "9223372036854775807"]),
        ]);
    }
    words
}

fn renew(owner: &'static str, dice: &mut Dice) -> Vec<&'static str> {
    let mut words = vec!["RENEW", owner];
    if dice.one_in(2) {
        words.extend([
            "LEASE",
            time(dice, &["10000", "100000000", "4503599627370496"]),
        ]);
    }
    words
}

/// One of these, or what is wrong.
fn time(dice: &mut Dice, right: &[&'static str]) -> &'static str {
    if dice.one_in(30) {
        dice.pick(&WRONG)
    } else {
        dice.pick(right)
    }
}

impl Side {
    fn new(server: Server, by_script: bool) -> Self {
        let mut client = server.connect();
        lua::load(&mut client);
        Self {
            client,
            listener: Listener::new(server.port, WAKE_UPS),
            _server: server,
            by_script,
            instead: Vec::new(),
            token: 0,
        }
    }

    /// The scripts run as on Redis 7.2.0 to 7.2.4.
    fn with_exponents(mut self) -> Self {
        for script in lua::SCRIPTS.iter() {
            let text = format!("{EXPONENTS}{}", script.text);
            let load: [&[u8]; 3] = [b"SCRIPT", b"LOAD", text.as_bytes()];
            self.client.raw(&load).expect("loaded");
            self.instead.push((script.sha1.clone(), lua::sha1(&text)));
        }
        self
    }

    fn begin(&mut self) {
        self.listener.until_now();
        self.token = 0;
    }

    /// The messages to this lock's waiters.
    fn heard(&self, keys: &[String; 4]) -> Vec<Message> {
        let channel = keys[1].replace("lock_queue", "lock__channel") + ":";
        let mut messages = self.listener.until_now();
        messages.retain(|(of, _)| of.starts_with(&channel));
        messages
    }

    /// What comes before a nap.
    fn tire(&mut self, ends: bool, keys: &[String; 4]) {
        if self.client.run(&format!("LLEN {}", keys[1])) == "0" {
            let short = format!("ACQUIRE s ENQUEUE LEASE {SHORT} PATIENCE {SHORT}");
            // It may be refused: what comes after it shows that.
            let _ = self.call(&ask(&short), keys);
        }
        if ends {
            self.client.run(&format!("PEXPIRE {} {SHORT}", keys[0]));
        }
    }

    fn take(&mut self, step: &Step, keys: &[String; 4]) -> Seen {
        let reply = match step {
            Step::Call(words) => self.call(words, keys),
            Step::CallWithFullMemory(words) => {
                self.client.run("CONFIG SET maxmemory 1");
                let reply = self.call(words, keys);
                self.client.run("CONFIG SET maxmemory 0");
                reply
            }
            Step::Foreign(words) => {
                let [lock, queue, deadlines, _] = keys;
                let words = words.replace("{lock}", lock).replace("{queue}", queue);
                self.client.run(&words.replace("{deadlines}", deadlines));
                self.call(&ask("ACQUIRE z ENQUEUE"), keys)
            }
            Step::Nap { .. } => self.call(&ask("ACQUIRE z ENQUEUE"), keys),
        };
        let (reply, retry_after) = self.read(reply);
        self.look(reply, retry_after, keys)
    }

    fn call(&mut self, words: &[String], keys: &[String; 4]) -> Result<Value, String> {
        let token = self.token.to_string();
        let mut words: Vec<String> = words
            .iter()
            .map(|word| word.replace("{token}", &token))
            .collect();
        words.insert(1, keys[0].clone());
        words[0] = format!("FAIRLOCK.{}", words[0]);
        if self.by_script {
            words = lua::call(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        if let Some((_, other)) = self.instead.iter().find(|(sha1, _)| *sha1 == words[1]) {
            words[1].clone_from(other);
        }
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        self.client.raw(&words)
    }

    /// A reply in words that are the same everywhere, and a time in it.
    fn read(&mut self, reply: Result<Value, String>) -> (String, i64) {
        match reply {
            Err(error) => (error.split(' ').next().unwrap_or_default().to_owned(), 0),
            Ok(Value::Int(token))
                if token > 1_000_000_000_000_000 && token < 4_000_000_000_000_000 =>
            {
                let word = match token.cmp(&self.token) {
                    Ordering::Equal => "the token",
                    Ordering::Greater => "a greater token",
                    Ordering::Less => "A SMALLER TOKEN",
                };
                self.token = token;
                (word.to_owned(), 0)
            }
            Ok(Value::Array(place)) => match &place[..] {
                [Value::Int(position), Value::Int(retry_after)] => {
                    (format!("position {position}"), *retry_after)
                }
                other => panic!("{other:?}"),
            },
            Ok(other) => (show(&other), 0),
        }
    }

    fn look(&mut self, reply: String, retry_after: i64, keys: &[String; 4]) -> Seen {
        let [lock, queue, deadlines, _] = keys;
        let answers = self.client.run_many([
            "MULTI".to_owned(),
            format!("HGETALL {lock}"),
            format!("LRANGE {queue} 0 -1"),
            format!("ZRANGE {deadlines} 0 -1"),
            format!("PTTL {lock}"),
            "EXEC".to_owned(),
        ]);
        let Some(Value::Array(answers)) = answers.last() else {
            panic!("{answers:?}");
        };
        let [lock, queue, deadlines, lease_left] = &answers[..] else {
            panic!("{answers:?}");
        };
        let mut holder: Vec<String> = words(lock)
            .chunks(2)
            .map(|field| match field {
                [name, _] if name.is_empty() => "and a token".to_owned(),
                field => field.join(" "),
            })
            .collect();
        holder.sort();
        // Where others have taken the owner out of the hash, the module deletes what is left, and a script leaves it
        // until the lease is over. The lock is free either way.
        let is_free = holder == ["and a token"];
        if is_free {
            holder.clear();
        }
        let mut waiters = words(deadlines);
        waiters.sort();
        let lease_left = match lease_left {
            _ if is_free => NO_KEY,
            Value::Int(left) => *left,
            other => panic!("{other:?}"),
        };
        Seen {
            reply,
            retry_after,
            holder,
            queue: words(queue).join(" "),
            waiters,
            lease_left,
        }
    }
}

/// The words of an answer; of an error its code.
fn words(answer: &Value) -> Vec<String> {
    match answer {
        Value::Array(items) => items.iter().map(show).collect(),
        other => vec![show(other).split(' ').next().unwrap_or_default().to_owned()],
    }
}

impl Seen {
    fn is_like(&self, other: &Self, apart: u128) -> bool {
        let near = |one: i64, other: i64| {
            (one < 0) == (other < 0) && u128::from(one.abs_diff(other)) < apart
        };
        // While the head has its turn, a script has others ask in the middle of it, which wakes those behind a silent
        // head. The module has a timer for that.
        let is_half = other.holder.is_empty() && near(self.retry_after, 2 * other.retry_after);
        self.reply == other.reply
            && self.reply != "A SMALLER TOKEN"
            && (near(self.retry_after, other.retry_after) || is_half)
            && self.holder == other.holder
            && self.queue == other.queue
            && self.waiters == other.waiters
            && near(self.lease_left, other.lease_left)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            reply,
            retry_after,
            holder,
            queue,
            waiters,
            lease_left,
        } = self;
        write!(
            out,
            "{reply} ({retry_after}) | {} ({lease_left}) | {queue} | {}",
            holder.join(", "),
            waiters.join(" ")
        )
    }
}
