//! What a client does next.

use fastrand::Rng;

use crate::grammar::{ANYTHING, CONTENTS, Dumps, FAIRLOCK, SERVER, fill, form, spoil};
use crate::scripts::{self, Script};
use crate::words::{Words, bytes, once_in, pick};

/// One thing that a client does.
#[derive(Debug)]
pub enum Step {
    /// It sends these commands at once, each of which is answered.
    Send(Vec<Words>),
    /// It sends these between CLIENT REPLY OFF and ON: nothing is answered but the ON.
    Unanswered(Vec<Words>),
    /// It closes its connection, even in the middle of a request.
    HangUp,
    /// It kills another client.
    Kill,
    /// It unblocks another client, with an error or as if its time was up.
    Unblock(bool),
    /// It sends bytes that are not a command, on a connection of its own.
    Garbage(Vec<u8>),
}

/// What steps are made from.
#[derive(Debug)]
pub struct Material {
    pub dumps: Dumps,
    pub scripts: Vec<Script>,
    /// How many of a hundred commands are other people's, on the keys. Where they are many, most
    /// commands of the module are refused.
    pub rubbish: usize,
}

/// A command by itself.
fn command(rng: &mut Rng, material: &Material) -> Words {
    let roll = rng.usize(..100);
    let forms = if roll < material.rubbish * 2 / 3 {
        CONTENTS
    } else if roll < material.rubbish {
        ANYTHING
    } else if roll < material.rubbish + 18 {
        return redisson(rng, material);
    } else if roll < material.rubbish + 20 {
        let form = form(rng, FAIRLOCK);
        let inner = fill(rng, form, &material.dumps);
        return scripts::around(rng, inner);
    } else {
        FAIRLOCK
    };
    let form = form(rng, forms);
    let mut words = fill(rng, form, &material.dumps);
    if once_in(rng, 12) {
        spoil(rng, &mut words);
    }
    words
}

fn redisson(rng: &mut Rng, material: &Material) -> Words {
    let call = scripts::call(rng, &material.scripts);
    if once_in(rng, 30) {
        // The command that an intercepted one becomes, sent by a client itself.
        let mut direct = call;
        direct[0] = [b"FAIRLOCK.", direct[0].as_slice()].concat();
        return direct;
    }
    call
}

fn commands(rng: &mut Rng, material: &Material, most: usize) -> Vec<Words> {
    let number = rng.usize(1..=most);
    (0..number).map(|_| command(rng, material)).collect()
}

fn words(line: &str) -> Words {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// Commands around others.
fn within(before: &str, commands: Vec<Words>, after: &str) -> Step {
    let mut all = vec![words(before)];
    all.extend(commands);
    all.push(words(after));
    Step::Send(all)
}

/// What a client does next.
pub fn step(rng: &mut Rng, material: &Material) -> Step {
    match rng.usize(..1000) {
        0..=59 => transaction(rng, material),
        60..=69 => Step::Unanswered(commands(rng, material, 4)),
        70..=74 => Step::HangUp,
        75..=78 => Step::Kill,
        79..=88 => Step::Unblock(rng.bool()),
        89 => Step::Garbage(garbage(rng)),
        90 => {
            let few = commands(rng, material, 3);
            let policy = pick(rng, &["noeviction", "allkeys-random", "volatile-ttl"]);
            let full = format!("CONFIG SET maxmemory 1 maxmemory-policy {policy}");
            within(&full, few, "CONFIG SET maxmemory 0")
        }
        91..=94 => {
            let user = pick(rng, &["AUTH reader x", "AUTH limited x", "AUTH none x"]);
            within(user, commands(rng, material, 4), "AUTH default x")
        }
        95 => reload(),
        96..=145 => {
            let form = form(rng, SERVER);
            Step::Send(vec![fill(rng, form, &material.dumps)])
        }
        _ => Step::Send(commands(rng, material, 16)),
    }
}

/// The server forgets what has expired when it loads its own data, and tells no replica: so everything is deleted
/// before anything else happens. Blocked clients stay.
fn reload() -> Step {
    let all = ["MULTI", "DEBUG RELOAD", "FLUSHALL", "EXEC"];
    Step::Send(all.map(words).to_vec())
}

fn transaction(rng: &mut Rng, material: &Material) -> Step {
    let mut all = Vec::new();
    if once_in(rng, 3) {
        all.push(fill(rng, "WATCH {any} {lock}", &material.dumps));
        all.extend(commands(rng, material, 2));
    }
    all.push(words("MULTI"));
    all.extend(commands(rng, material, 8));
    if once_in(rng, 10) {
        let form = form(rng, SERVER);
        all.push(fill(rng, form, &material.dumps));
    }
    all.push(words(if once_in(rng, 8) { "DISCARD" } else { "EXEC" }));
    Step::Send(all)
}

fn garbage(rng: &mut Rng) -> Vec<u8> {
    let starts: [&[u8]; 5] = [
        b"*3\r\n$16\r\nFAIRLOCK.ACQUIRE\r\n$-1\r\n",
        b"*2\r\n$13\r\nFAIRLOCK.INFO\r\n$99999999999\r\n",
        b"*1000000000\r\n",
        b"FAIRLOCK.ACQUIRE k \"a\r\n",
        b"",
    ];
    [pick(rng, &starts), &bytes(rng), b"\r\n"].concat()
}
