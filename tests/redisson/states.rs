//! Random states of a lock's keys, and random calls of its scripts.

use std::fmt;

use fairlock_testing::Dice;
use fairlock_testing::redisson::harvest::Script;
use fairlock_testing::redisson::{self, keys};

use crate::hand::now;

/// A command's words.
pub type Words = Vec<Vec<u8>>;

/// One case: a state, a script's call, and questions about what is left, in one transaction.
pub struct Case {
    /// From MULTI to EXEC.
    pub commands: Vec<Words>,
    /// Scores and replies depend on how long the lease still is.
    pub goes_by_the_clock: bool,
    /// The caller of the script.
    pub owner: String,
    /// Its patience, if the script tells a waiter that asks again when the one before it is over (3.11.1 to 3.31.0).
    pub wait: Option<f64>,
    /// The waiters' scores before the call.
    pub scores: Vec<(String, f64)>,
}

const OWNERS: [&str; 5] = ["a:1", "b:1", "c:1", "d:1", "e:1"];

/// The keys of a case's lock, by both of Redisson's rules for names.
fn keys_of(number: usize) -> [String; 5] {
    if number.is_multiple_of(7) {
        keys(&format!("x{{{number}}}"), "1f")
    } else {
        keys(&format!("lock{number}"), "1f")
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
    /// How many questions are asked after the call.
    pub const QUESTIONS: usize = 9;
    /// How many of the last answers say how much time is left.
    pub const TIMES: usize = 2;
    /// The questions after holder, queue and lease; and scores, counted from the reply.
    pub const HOLDER: usize = 0;
    pub const QUEUE: usize = 1;
    pub const LEASE: usize = 7;
    pub const SCORES: usize = 3;

    /// A case for a script; each has a lock of its own, by its number.
    pub fn new(script: &Script, number: usize, dice: &mut Dice) -> Self {
        let keys = keys_of(number);
        let now = now();
        let mut commands = vec![words("MULTI")];
        let owner = dice.pick(&OWNERS);
        let (goes_by_the_clock, known) = state(&keys, now, owner, script.role, dice, &mut commands);
        let arguments = arguments(script, owner, now, dice);
        let (call, arguments) = call(script, arguments, &keys, dice);
        commands.push(call);
        let caller = match script.role {
            "leave" | "renew" => owner,
            _ => arguments.get(1).map_or(owner, String::as_str),
        };
        let goes_by_position = script.role == "lock" && matches!(script.text.len(), 1453 | 1474);
        let wait = arguments.get(2).filter(|_| goes_by_position);
        let [lock, queue, scores, _, latch] = &keys;
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
            owner: caller.to_owned(),
            wait: wait.and_then(|wait| wait.parse().ok()),
            scores: known,
        }
    }
}

/// Random keys: each waiter once, with a score. (The tests of repair have the other ones.) Returns whether the lock has
/// a lease, and the scores.
fn state(
    keys: &[String; 5],
    now: u64,
    caller: &str,
    role: &str,
    dice: &mut Dice,
    commands: &mut Vec<Words>,
) -> (bool, Vec<(String, f64)>) {
    let [lock, queue, by_score, _, latch] = keys;
    let mut add = |line: String| commands.push(words(&line));
    let holder = dice.usize(..12);
    match holder {
        0..4 => (),
        4 if dice.one_in(4) => add(format!("SET {lock} x")),
        4 if dice.one_in(4) => add(format!(
            "HSET {lock} {} {}",
            OWNERS[0],
            dice.pick(&["x", "1.5", "9223372036854775807", "-9223372036854775808"])
        )),
        4 => add(format!("HSET {lock} {} 1 {} 2", OWNERS[1], OWNERS[3])),
        _ => add(format!(
            "HSET {lock} {} {}",
            dice.pick(&OWNERS),
            dice.pick(&["1", "1", "2", "3", "0", "-1"])
        )),
    }
    let leased = dice.one_in(2);
    if leased {
        add(format!(
            "PEXPIRE {lock} {}",
            dice.pick(&["30000", "600000", "90000000"])
        ));
    }
    let mut waiting: Vec<&str> = OWNERS.to_vec();
    dice.shuffle(&mut waiting);
    waiting.truncate(dice.pick(&[0, 0, 1, 2, 3, 5]));
    let mut scores = Vec::new();
    for owner in &waiting {
        // A client that asks lives, and would lose its place by a script that finds its score over. Natively no step
        // leaves a dead head behind when the lock is free; a script that leaves does.
        let all_live = role == "leave" && holder < 4;
        let score = if *owner == caller || all_live {
            (now + 900_000).to_string()
        } else {
            score(now, dice)
        };
        add(format!("RPUSH {queue} {owner}"));
        add(format!("ZADD {by_score} {score} {owner}"));
        scores.push(((*owner).to_owned(), score.parse().expect("a number")));
    }
    if waiting.is_empty() && dice.one_in(40) {
        add(format!("SET {queue} x"));
    }
    if dice.one_in(60) {
        add(format!("DEL {by_score}"));
        add(format!("SADD {by_score} x"));
    }
    match dice.usize(..20) {
        0 => add(format!("SET {latch} 1 PX 50000")),
        1 => add(format!("SET {latch} 0")),
        2 if dice.one_in(4) => add(format!("SET {latch} {}", dice.pick(&["x", "1.5", "07"]))),
        3 if dice.one_in(4) => add(format!("RPUSH {latch} x")),
        _ => (),
    }
    (leased, scores)
}

/// The end of a waiter's time: long over, ahead, far away, not whole. An end that has passed by some clocks only proves
/// nothing: natively the server's clock counts, too.
fn score(now: u64, dice: &mut Dice) -> String {
    let at = |offset: i64| now.saturating_add_signed(offset);
    match dice.usize(..16) {
        0..5 => at(300_000).to_string(),
        5..8 => at(5_000).to_string(),
        8 => at(-700_000).to_string(),
        9 => at(900_000).to_string(),
        10 => at(-650_000).to_string(),
        11 => format!("{}.25", at(60_000)),
        12 => at(-3_600_000).to_string(),
        13 => dice.pick(&["0", "-300000", "1", "0.5"]).to_owned(),
        14 => dice.pick(&["1e18", "9007199254740993"]).to_owned(),
        _ => at(86_400_000).to_string(),
    }
}

/// The script with its keys and arguments, once in a while with some that it does not expect; and those
/// arguments.
fn call(
    script: &Script,
    mut arguments: Vec<String>,
    keys: &[String; 5],
    dice: &mut Dice,
) -> (Words, Vec<String>) {
    let mut names: Vec<&String> = script.keys_of(keys).iter().collect();
    if script.renews_many() {
        let [lock, queue, _, channel, _] = keys;
        for _ in 0..dice.usize(..4) {
            names.push(dice.pick(&[lock, lock, channel, queue]));
            arguments.push(dice.pick(&OWNERS).to_owned());
        }
    }
    if dice.one_in(40) {
        let changed = dice.usize(..arguments.len());
        let strange = dice.pick(STRANGE);
        // By a clock that is years off, Lua drops its own caller, or leaves the dead.
        let is_time = changed == clock(script) && strange.parse::<f64>().is_ok();
        let strange = if is_time { "x" } else { strange };
        strange.clone_into(&mut arguments[changed]);
    }
    match dice.usize(..180) {
        0..3 => drop(arguments.pop()),
        3..6 => arguments.push("more".to_owned()),
        6..9 => drop(names.pop()),
        _ => (),
    }
    let mut words = if dice.one_in(2) {
        vec![b"EVALSHA".to_vec(), script.sha1.clone().into_bytes()]
    } else {
        vec![b"EVAL".to_vec(), script.text.clone()]
    };
    // The server takes a number with any of these in front for none.
    let before = if dice.one_in(200) {
        dice.pick(&["0", "+", " "])
    } else {
        ""
    };
    words.push(format!("{before}{}", names.len()).into_bytes());
    words.extend(names.into_iter().map(|name| name.clone().into_bytes()));
    words.extend(
        arguments
            .iter()
            .map(|argument| argument.clone().into_bytes()),
    );
    (words, arguments)
}

/// Which argument is the client's time.
fn clock(script: &Script) -> usize {
    match script.role {
        "force-unlock" => 1,
        "try-lock" | "try-lock-non-reentrant" => 2,
        _ => 3,
    }
}

const STRANGE: &[&str] = &[
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
fn arguments(script: &Script, owner: &str, now: u64, dice: &mut Dice) -> Vec<String> {
    let skew = dice.pick(&[0, 0, 0, 0, 3, -600_000, 600_000]);
    let time = now.saturating_add_signed(skew);
    let role = script.role.trim_end_matches("-non-reentrant");
    let names = redisson::arguments(role).iter();
    names
        .take(script.arguments)
        .map(|name| match *name {
            "lease" => dice.pick(&["30000", "1000", "600000"]).to_owned(),
            "owner" => owner.to_owned(),
            // The oldest form has the end of its wait.
            "wait" if is_oldest(script) => (time + 5000).to_string(),
            "wait" => dice
                .pick(&["300000", "5000", "300000", "0", "9223372036854775807"])
                .to_owned(),
            "now" => time.to_string(),
            "publish" => dice
                .pick(&["PUBLISH", "PUBLISH", "SPUBLISH", "publish"])
                .to_owned(),
            "latch" => dice.pick(&["13500", "20000"]).to_owned(),
            "error" => "NON_REENTRANT_REACQUIRE".to_owned(),
            _ => "0".to_owned(),
        })
        .collect()
}

/// The script that takes the lock before 3.11.1.
fn is_oldest(script: &Script) -> bool {
    script.role == "lock" && script.text.len() == 1181
}
