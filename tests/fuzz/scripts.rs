//! Redisson's scripts, and other people's that call the module.

use fairlock::{ROLES, table};
use fairlock_testing::redisson::harvest::harvest;
use fairlock_testing::redisson::{NEWEST, OLD, arguments};
use fairlock_testing::{Dice, needs_only_rust};

use crate::grammar::{Dumps, fill};
use crate::words::Words;

/// One of Redisson's scripts.
#[derive(Clone, Debug)]
pub struct Script {
    /// The [form](crate::grammar) of its call.
    form: String,
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
            form: form(known),
            text: text(known),
        })
        .collect()
}

fn form(script: &table::Script) -> String {
    let role = ROLES[script.role].replace('_', "-");
    let count = script.keys.unwrap_or(1);
    // To leave the queue no lock is named.
    let keys = KEYS.iter().skip(usize::from(role == "leave")).take(count);
    let number = script.keys.map_or(2, |_| script.arguments);
    let arguments = arguments(&role).iter().take(number);
    let arguments = arguments.map(|name| match *name {
        "owner" => "{owner}",
        "now" => "{moment}",
        "publish" => "{publish}",
        "message" => "0",
        _ => "{ms}",
    });
    let words: Vec<&str> = keys.copied().chain(arguments).collect();
    format!("EVALSHA {} {count} {}", script.hex, words.join(" "))
}

const KEYS: [&str; 5] = ["{lock}", "{queue}", "{deadlines}", "{channel}", "{latch}"];

/// A call of one of them. Those of which the text is known are called more often: they run as Lua
/// as well.
pub fn call(dice: &mut Dice, scripts: &[Script], dumps: &Dumps) -> Words {
    let mut script = &scripts[dice.usize(..scripts.len())];
    while script.text.is_none() && !dice.one_in(8) {
        script = &scripts[dice.usize(..scripts.len())];
    }
    let mut words = fill(dice, &script.form, dumps);
    if let Some(text) = script.text.as_ref().filter(|_| dice.bool()) {
        words.splice(..2, [b"EVAL".to_vec(), text.clone()]);
    }
    if dice.one_in(30) {
        // The command that an intercepted one becomes, sent by a client itself.
        words[0].splice(..0, *b"FAIRLOCK.");
    }
    words
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
