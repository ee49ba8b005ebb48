//! What a client does next.

use fairlock_testing::Dice;
use fairlock_testing::forms::form;

use crate::grammar::{ANYTHING, CONTENTS, Dumps, FAIRLOCK, SERVER, fill, spoil};
use crate::scripts::{self, Script};
use crate::words::Words;

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
fn command(dice: &mut Dice, material: &Material) -> Words {
    let roll = dice.usize(..100);
    let any = |dice: &mut Dice, forms| {
        let form = form(dice, forms);
        fill(dice, form, &material.dumps)
    };
    let mut words = if roll < material.rubbish * 2 / 3 {
        any(dice, CONTENTS)
    } else if roll < material.rubbish {
        any(dice, ANYTHING)
    } else if roll < material.rubbish + 18 {
        scripts::call(dice, &material.scripts, &material.dumps)
    } else if roll < material.rubbish + 20 {
        let inner = any(dice, FAIRLOCK);
        scripts::around(dice, inner)
    } else {
        any(dice, FAIRLOCK)
    };
    if dice.one_in(12) {
        spoil(dice, &mut words);
    }
    words
}

fn commands(dice: &mut Dice, material: &Material, most: usize) -> Vec<Words> {
    let number = dice.usize(1..=most);
    (0..number).map(|_| command(dice, material)).collect()
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
pub fn step(dice: &mut Dice, material: &Material) -> Step {
    match dice.usize(..1000) {
        0..=59 => transaction(dice, material),
        60..=69 => Step::Unanswered(commands(dice, material, 4)),
        70..=74 => Step::HangUp,
        75..=78 => Step::Kill,
        79..=88 => Step::Unblock(dice.bool()),
        90 => {
            let few = commands(dice, material, 3);
            let policy = dice.pick(&["noeviction", "allkeys-random", "volatile-ttl"]);
            let full = format!("CONFIG SET maxmemory 1 maxmemory-policy {policy}");
            within(&full, few, "CONFIG SET maxmemory 0")
        }
        91..=94 => {
            let user = dice.pick(&["AUTH reader x", "AUTH limited x", "AUTH none x"]);
            within(user, commands(dice, material, 4), "AUTH default x")
        }
        95 => reload(),
        96..=145 => {
            let form = form(dice, SERVER);
            Step::Send(vec![fill(dice, form, &material.dumps)])
        }
        _ => Step::Send(commands(dice, material, 16)),
    }
}

/// The server forgets what has expired when it loads its own data, and tells no replica: so everything is deleted
/// before anything else happens. Blocked clients stay.
fn reload() -> Step {
    let all = ["MULTI", "DEBUG RELOAD", "FLUSHALL", "EXEC"];
    Step::Send(all.map(words).to_vec())
}

fn transaction(dice: &mut Dice, material: &Material) -> Step {
    let mut all = Vec::new();
    if dice.one_in(3) {
        all.push(fill(dice, "WATCH {any} {lock}", &material.dumps));
        all.extend(commands(dice, material, 2));
    }
    all.push(words("MULTI"));
    all.extend(commands(dice, material, 8));
    if dice.one_in(10) {
        let form = form(dice, SERVER);
        all.push(fill(dice, form, &material.dumps));
    }
    all.push(words(if dice.one_in(8) { "DISCARD" } else { "EXEC" }));
    Step::Send(all)
}
