//! Redisson's scripts, called rightly and nearly so, and other people's that call the module.

use fairlock::redisson::stats::ROLES;
use fairlock::redisson::table;
use fairlock_testing::redisson::harvest::harvest;
use fairlock_testing::redisson::{NEWEST, OLD};
use fairlock_testing::{Dice, needs_only_rust};

use crate::words::{Words, bytes, count, derived, duration, lock, moment, owner, wild};

/// One of Redisson's scripts.
#[derive(Clone, Debug)]
pub struct Script {
    known: &'static table::Script,
    /// Known of two releases.
    pub text: Option<Vec<u8>>,
}

/// All scripts in the module's table, those of two releases with their text where there may be Java for their clients.
pub fn redisson() -> Vec<Script> {
    let releases: &[_] = if needs_only_rust() {
        &[]
    } else {
        &[NEWEST, OLD]
    };
    let harvested: Vec<_> = releases.iter().flat_map(|of| harvest(of)).collect();
    let text = |known: &table::Script| {
        let script = harvested.iter().find(|script| script.sha1 == known.hex)?;
        Some(script.text.clone())
    };
    let known = table::scripts().iter();
    known
        .map(|known| Script {
            known,
            text: text(known),
        })
        .collect()
}

/// A call of one of them. Those of which the text is known are called more often: they run as Lua
/// as well.
pub fn call(dice: &mut Dice, scripts: &[Script]) -> Words {
    let mut script = &scripts[dice.usize(..scripts.len())];
    while script.text.is_none() && !dice.one_in(8) {
        script = &scripts[dice.usize(..scripts.len())];
    }
    let mut words = match &script.text {
        Some(text) if dice.bool() => vec![b"EVAL".to_vec(), body(dice, text)],
        _ => vec![b"EVALSHA".to_vec(), digest(dice, script.known.hex)],
    };
    let (lock, role) = (lock(dice), ROLES[script.known.role]);
    let (number_of_keys, number) = match script.known.keys {
        Some(keys) => (keys, script.known.arguments),
        None => (1, 2),
    };
    let mut keys = keys(dice, role, &lock);
    let mut arguments = arguments(dice, role, number);
    if dice.one_in(30) {
        keys.push(lock);
    }
    if dice.one_in(30) {
        arguments.push(bytes(dice));
    }
    keys.truncate(if dice.one_in(40) {
        dice.usize(..6)
    } else {
        number_of_keys
    });
    arguments.truncate(if dice.one_in(40) {
        dice.usize(..8)
    } else {
        number
    });
    if dice.one_in(20) && !arguments.is_empty() {
        let at = dice.usize(..arguments.len());
        arguments[at] = wild(dice);
    }
    words.push(if dice.one_in(50) {
        count(dice)
    } else {
        keys.len().to_string().into_bytes()
    });
    words.extend(keys);
    words.extend(arguments);
    words
}

/// A script's text, and at times nearly that. Any other byte would not do: `i = i + 0` never ends.
fn body(dice: &mut Dice, text: &[u8]) -> Vec<u8> {
    let mut body = text.to_vec();
    let at = dice.usize(..body.len());
    match dice.usize(..40) {
        0 => body.push(b' '),
        1 => drop(body.pop()),
        // Another name, which Lua does not know, or the same command in other letters.
        2 if body[at].is_ascii_alphabetic() => body[at] ^= 0x20,
        // Not Lua, or a command that the server does not know.
        2 => body[at] = dice.u8(0x80..),
        _ => (),
    }
    body
}

fn digest(dice: &mut Dice, sha1: &str) -> Vec<u8> {
    match dice.usize(..40) {
        0 => bytes(dice),
        1 => sha1.as_bytes()[1..].to_vec(),
        2..=10 => sha1.to_uppercase().into_bytes(),
        _ => sha1.as_bytes().to_vec(),
    }
}

fn keys(dice: &mut Dice, role: &str, lock: &[u8]) -> Words {
    let mut keys = vec![
        lock.to_vec(),
        derived("redisson_lock_queue", lock),
        derived("redisson_lock_timeout", lock),
        derived("redisson_lock__channel", lock),
    ];
    let latch = derived("redisson_unlock_latch", lock);
    keys.push([&latch, b":1f".as_slice()].concat());
    if role == "leave" {
        keys.remove(0);
    }
    if dice.one_in(40) {
        let at = dice.usize(..keys.len());
        let first = keys[0].clone();
        keys[at] = first;
    }
    keys
}

/// In the order in which a role's scripts take them; which one depends on how many there are.
fn arguments(dice: &mut Dice, role: &str, number: usize) -> Words {
    let (lease, now, patience) = (duration(dice), moment(dice), duration(dice));
    let owner = owner(dice);
    let method: &str = dice.pick(&["PUBLISH", "SPUBLISH", "publish", "SET"]);
    let method = method.as_bytes().to_vec();
    let zero = b"0".to_vec();
    match role {
        "try_lock" => vec![lease, owner, now, patience],
        "lock" if number > 3 => vec![lease, owner, patience, now],
        "unlock" => vec![zero, lease, owner, now, method, duration(dice)],
        "force_unlock" => vec![zero, now, method],
        "leave" => vec![owner, patience],
        _ => vec![lease, owner, now],
    }
}

/// Lua around a command.
const BODIES: &[&str] = &[
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "redis.call(unpack(ARGV)) return redis.call(unpack(ARGV))",
    "redis.setresp(3) return redis.call(unpack(ARGV))",
    "redis.pcall(unpack(ARGV)) redis.call('del', ARGV[2]) return redis.pcall(unpack(ARGV))",
    "redis.call('select', 1) return redis.call(unpack(ARGV))",
    "local r = redis.pcall(unpack(ARGV)) redis.call('publish', 'c', 'm') error('on purpose')",
];

/// A library whose function does the same.
pub const LIBRARY: &str = "#!lua name=fuzz\n\
    redis.register_function('through', function(keys, args) return redis.call(unpack(args)) end)";

/// A script or function that calls a command.
pub fn around(dice: &mut Dice, command: Words) -> Words {
    let start: Vec<&[u8]> = match dice.usize(..6) {
        0 => vec![b"FCALL", b"through", b"0"],
        1 => vec![b"EVAL_RO", dice.pick(BODIES).as_bytes(), b"0"],
        _ => vec![b"EVAL", dice.pick(BODIES).as_bytes(), b"0"],
    };
    let start = start.into_iter().map(<[u8]>::to_vec);
    start.chain(command).collect()
}
