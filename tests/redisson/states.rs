//! Random states of a lock's keys, and random calls of its scripts.

use std::fmt;

use crate::dice::mix;
use crate::harvest::Script;

/// A command's words.
pub type Words = Vec<Vec<u8>>;

/// One case: a state, a script's call, and questions about what is left, in one transaction.
pub struct Case {
    /// From MULTI to EXEC.
    pub commands: Vec<Words>,
    /// Scores and replies depend on how long the lease still is.
    pub goes_by_the_clock: bool,
}

/// Numbers that follow each other without an order: the same from the same seed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        mix(&mut self.0)
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("small");
        usize::try_from(self.next() % limit).expect("small")
    }

    /// True once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

const OWNERS: [&str; 5] = ["a:1", "b:1", "c:1", "d:1", "e:1"];

/// The names of one lock's keys.
struct Keys {
    lock: String,
    queue: String,
    scores: String,
    channel: String,
    latch: String,
}

impl Keys {
    fn of(number: usize) -> Self {
        // Both of Redisson's rules for names.
        let lock = if number.is_multiple_of(7) {
            format!("x{{{number}}}")
        } else {
            format!("lock{number}")
        };
        let name = |prefix: &str| {
            if lock.contains('{') {
                format!("{prefix}:{lock}")
            } else {
                format!("{prefix}:{{{lock}}}")
            }
        };
        Self {
            queue: name("redisson_lock_queue"),
            scores: name("redisson_lock_timeout"),
            channel: name("redisson_lock__channel"),
            latch: name("redisson_unlock_latch") + ":1f",
            lock,
        }
    }
}

fn words(line: &str) -> Words {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// As redis-cli takes it, but for the text of a script.
impl fmt::Display for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for command in &self.commands {
            for word in command {
                match word.len() {
                    ..=60 => write!(out, "'{}' ", word.escape_ascii())?,
                    length => write!(out, "<script of {length} bytes> ")?,
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

impl Case {
    /// How many of the last answers say how much time is left.
    pub const TIMES: usize = 2;

    /// A case for a script; each has a lock of its own, by its number.
    pub fn new(script: &Script, number: usize, random: &mut Random) -> Self {
        let keys = Keys::of(number);
        let now = now();
        let mut commands = vec![words("MULTI")];
        let goes_by_the_clock = state(&keys, now, random, &mut commands);
        commands.push(call(script, &keys, now, random));
        let Keys {
            lock,
            queue,
            scores,
            latch,
            ..
        } = &keys;
        for question in [
            format!("HGETALL {lock}"),
            format!("LRANGE {queue} 0 -1"),
            format!("ZRANGE {scores} 0 -1 WITHSCORES"),
            format!("GET {latch}"),
            format!("EXISTS {lock} {queue} {scores} {latch}"),
            format!("PTTL {queue}"),
            format!("PTTL {scores}"),
            format!("PTTL {lock}"),
            format!("PTTL {latch}"),
        ] {
            commands.push(words(&question));
        }
        commands.push(words("EXEC"));
        Self {
            commands,
            goes_by_the_clock,
        }
    }
}

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970")
        .as_millis()
        .try_into()
        .expect("small")
}

/// Whatever the keys may look like. Returns whether the lock has a lease.
fn state(keys: &Keys, now: u64, random: &mut Random, commands: &mut Vec<Words>) -> bool {
    let Keys {
        lock,
        queue,
        scores,
        latch,
        ..
    } = keys;
    let mut add = |line: String| commands.push(words(&line));
    match random.below(12) {
        0..4 => (),
        4 if random.once_in(4) => add(format!("SET {lock} x")),
        4 if random.once_in(4) => add(format!(
            "HSET {lock} {} {}",
            OWNERS[0],
            random.pick(&["x", "1.5", "9223372036854775807", "-9223372036854775808"])
        )),
        4 => add(format!("HSET {lock} {} 1 {} 2", OWNERS[1], OWNERS[3])),
        _ => add(format!(
            "HSET {lock} {} {}",
            random.pick(&OWNERS),
            random.pick(&["1", "1", "2", "3", "0", "-1"])
        )),
    }
    let leased = random.once_in(2);
    if leased {
        add(format!(
            "PEXPIRE {lock} {}",
            random.pick(&["30000", "600000", "90000000"])
        ));
    }
    let waiting = random.pick(&[0, 0, 1, 2, 3, 5]);
    for _ in 0..waiting {
        // Sometimes twice.
        add(format!("RPUSH {queue} {}", random.pick(&OWNERS)));
    }
    if waiting == 0 && random.once_in(40) {
        add(format!("SET {queue} x"));
    }
    for owner in OWNERS.iter().take(waiting + 1) {
        if !random.once_in(6) {
            add(format!("ZADD {scores} {} {owner}", score(now, random)));
        }
    }
    if random.once_in(60) {
        add(format!("DEL {scores}"));
        add(format!("SADD {scores} x"));
    }
    match random.below(20) {
        0 => add(format!("SET {latch} 1 PX 50000")),
        1 => add(format!("SET {latch} 0")),
        2 if random.once_in(4) => add(format!("SET {latch} {}", random.pick(&["x", "1.5", "07"]))),
        3 if random.once_in(4) => add(format!("RPUSH {latch} x")),
        _ => (),
    }
    leased
}

/// The end of a waiter's time: over, ahead, far away, not whole.
fn score(now: u64, random: &mut Random) -> String {
    let at = |offset: i64| now.saturating_add_signed(offset);
    match random.below(16) {
        0..5 => at(300_000).to_string(),
        5..8 => at(5_000).to_string(),
        8 => at(-5_000).to_string(),
        9 => at(-1).to_string(),
        10 => now.to_string(),
        11 => format!("{}.25", at(60_000)),
        12 => at(-600_000).to_string(),
        13 => random.pick(&["0", "-300000", "1", "0.5"]).to_owned(),
        14 => random
            .pick(&["9223372036854775807", "1e18", "9007199254740993"])
            .to_owned(),
        _ => random.pick(&["inf", "-inf", "1e308"]).to_owned(),
    }
}

/// The script with its keys and arguments, once in a while with some that it does not expect.
fn call(script: &Script, keys: &Keys, now: u64, random: &mut Random) -> Words {
    let mut names = match script.role {
        "leave" => vec![&keys.queue, &keys.scores],
        "renew" => vec![&keys.lock; script.keys],
        _ => vec![
            &keys.lock,
            &keys.queue,
            &keys.scores,
            &keys.channel,
            &keys.latch,
        ],
    };
    names.truncate(script.keys);
    let mut arguments = arguments(script, now, random);
    if script.renews_many() {
        for _ in 0..random.below(4) {
            names.push(random.pick(&[&keys.lock, &keys.lock, &keys.channel, &keys.queue]));
            arguments.push(random.pick(&OWNERS).to_owned());
        }
    }
    if random.once_in(40) {
        let changed = random.below(arguments.len());
        random.pick(&STRANGE).clone_into(&mut arguments[changed]);
    }
    match random.below(180) {
        0..3 => drop(arguments.pop()),
        3..6 => arguments.push("more".to_owned()),
        6..9 => drop(names.pop()),
        _ => (),
    }
    let mut words = if random.once_in(2) {
        vec![b"EVALSHA".to_vec(), script.sha1.clone().into_bytes()]
    } else {
        vec![b"EVAL".to_vec(), script.text.clone()]
    };
    words.push(names.len().to_string().into_bytes());
    words.extend(names.into_iter().map(|name| name.clone().into_bytes()));
    words.extend(arguments.into_iter().map(String::into_bytes));
    words
}

const STRANGE: [&str; 12] = [
    "",
    "x",
    "0",
    "-1",
    "1.5",
    "1e3",
    "0x10",
    " 7",
    "inf",
    "nan",
    "9223372036854775807",
    "9223372036854775808",
];

/// ARGV in the script's order.
fn arguments(script: &Script, now: u64, random: &mut Random) -> Vec<String> {
    let lease = random.pick(&["30000", "1000", "600000"]).to_owned();
    let owner = random.pick(&OWNERS).to_owned();
    let wait = random
        .pick(&["300000", "5000", "300000", "0", "9223372036854775807"])
        .to_owned();
    let skew = random.pick(&[0, 0, 0, 0, 3, -600_000, 600_000]);
    let time = now.saturating_add_signed(skew);
    // Not the module's own message, so that a listener can tell them apart.
    let message = "7".to_owned();
    let publish = random
        .pick(&["PUBLISH", "PUBLISH", "SPUBLISH", "publish"])
        .to_owned();
    let latch = random.pick(&["13500", "20000"]).to_owned();
    let now = time.to_string();
    let mut arguments = match script.role {
        "try-lock" | "try-lock-non-reentrant" => vec![lease, owner, now, wait],
        // The oldest form has the end of its wait in the third argument.
        "lock" if script.text.len() == 1181 => vec![lease, owner, (time + 5000).to_string(), now],
        "lock" | "lock-non-reentrant" => vec![lease, owner, wait, now],
        "unlock" => vec![message, lease, owner, now, publish, latch],
        "force-unlock" => vec![message, now, publish],
        "leave" => vec![owner, wait],
        _ => vec![lease, owner],
    };
    if script.role.ends_with("non-reentrant") {
        arguments.push("NON_REENTRANT_REACQUIRE".to_owned());
    }
    arguments.truncate(script.arguments);
    arguments
}
