//! Redisson's scripts, called rightly and nearly so, and other people's that call the module.

use fairlock_testing::needs_only_rust;
use fairlock_testing::redisson::harvest::harvest;
use fairlock_testing::redisson::{NEWEST, OLD};
use fastrand::Rng;

use crate::words::{
    Words, bytes, count, derived, duration, lock, moment, once_in, owner, pick, wild,
};

/// Digests, roles and numbers of keys and arguments.
const TABLE: &str = include_str!("../../src/redisson/scripts.tsv");

/// One of Redisson's scripts.
#[derive(Clone, Debug)]
pub struct Script {
    role: String,
    sha1: String,
    /// Known of two releases.
    pub text: Option<Vec<u8>>,
    keys: usize,
    arguments: usize,
}

/// All scripts in the module's table, those of two releases with their text where there may be Java for their clients.
pub fn redisson() -> Vec<Script> {
    let releases: &[_] = if needs_only_rust() {
        &[]
    } else {
        &[NEWEST, OLD]
    };
    let known: Vec<_> = releases.iter().flat_map(|of| harvest(of)).collect();
    let lines = TABLE.lines().skip(1);
    lines
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let sha1 = columns[0].to_owned();
            let text = known.iter().find(|script| script.sha1 == sha1);
            Script {
                role: columns[2].to_owned(),
                text: text.map(|script| script.text.clone()),
                sha1,
                keys: columns[3].parse().unwrap_or(1),
                arguments: columns[4].parse().unwrap_or(2),
            }
        })
        .collect()
}

/// A call of one of them. Those of which the text is known are called more often: they run as Lua
/// as well.
pub fn call(rng: &mut Rng, scripts: &[Script]) -> Words {
    let mut script = &scripts[rng.usize(..scripts.len())];
    while script.text.is_none() && !once_in(rng, 8) {
        script = &scripts[rng.usize(..scripts.len())];
    }
    let mut words = match &script.text {
        Some(text) if rng.bool() => vec![b"EVAL".to_vec(), body(rng, text)],
        _ => vec![b"EVALSHA".to_vec(), digest(rng, &script.sha1)],
    };
    let lock = lock(rng);
    let mut keys = keys(rng, &script.role, &lock);
    let mut arguments = arguments(rng, &script.role, script.arguments);
    if once_in(rng, 30) {
        keys.push(lock);
    }
    if once_in(rng, 30) {
        arguments.push(bytes(rng));
    }
    keys.truncate(if once_in(rng, 40) {
        rng.usize(..6)
    } else {
        script.keys
    });
    arguments.truncate(if once_in(rng, 40) {
        rng.usize(..8)
    } else {
        script.arguments
    });
    if once_in(rng, 20) && !arguments.is_empty() {
        let at = rng.usize(..arguments.len());
        arguments[at] = wild(rng);
    }
    words.push(if once_in(rng, 50) {
        count(rng)
    } else {
        keys.len().to_string().into_bytes()
    });
    words.extend(keys);
    words.extend(arguments);
    words
}

/// A script's text, and at times nearly that. Any other byte would not do: `i = i + 0` never ends.
fn body(rng: &mut Rng, text: &[u8]) -> Vec<u8> {
    let mut body = text.to_vec();
    let at = rng.usize(..body.len());
    match rng.usize(..40) {
        0 => body.push(b' '),
        1 => drop(body.pop()),
        // Another name, which Lua does not know, or the same command in other letters.
        2 if body[at].is_ascii_alphabetic() => body[at] ^= 0x20,
        // Not Lua, or a command that the server does not know.
        2 => body[at] = rng.u8(0x80..),
        _ => (),
    }
    body
}

fn digest(rng: &mut Rng, sha1: &str) -> Vec<u8> {
    match rng.usize(..40) {
        0 => bytes(rng),
        1 => sha1.as_bytes()[1..].to_vec(),
        2..=10 => sha1.to_uppercase().into_bytes(),
        _ => sha1.as_bytes().to_vec(),
    }
}

fn keys(rng: &mut Rng, role: &str, lock: &[u8]) -> Words {
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
    if once_in(rng, 40) {
        let at = rng.usize(..keys.len());
        let first = keys[0].clone();
        keys[at] = first;
    }
    keys
}

/// In the order in which a role's scripts take them; which one depends on how many there are.
fn arguments(rng: &mut Rng, role: &str, number: usize) -> Words {
    let (lease, now, patience) = (duration(rng), moment(rng), duration(rng));
    let owner = owner(rng);
    let method: &str = pick(rng, &["PUBLISH", "SPUBLISH", "publish", "SET"]);
    let method = method.as_bytes().to_vec();
    let zero = b"0".to_vec();
    match role {
        role if role.starts_with("try-lock") => vec![lease, owner, now, patience],
        role if role.starts_with("lock") && number > 3 => vec![lease, owner, patience, now],
        "unlock" => vec![zero, lease, owner, now, method, duration(rng)],
        "force-unlock" => vec![zero, now, method],
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
pub fn around(rng: &mut Rng, command: Words) -> Words {
    let start: Vec<&[u8]> = match rng.usize(..6) {
        0 => vec![b"FCALL", b"through", b"0"],
        1 => vec![b"EVAL_RO", pick(rng, BODIES).as_bytes(), b"0"],
        _ => vec![b"EVAL", pick(rng, BODIES).as_bytes(), b"0"],
    };
    let start = start.into_iter().map(<[u8]>::to_vec);
    start.chain(command).collect()
}
