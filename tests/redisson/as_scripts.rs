//! The commands beside their scripts (`clients/lua`): random calls, the same on two servers, get the same replies and
//! leave the same holder, queue and messages. One server has the module and is sent the commands; the other has no
//! module and runs the scripts.
//!
//! Not compared: deadlines, which are scores for other programs; and, once a lease or a patience has ended or another
//! client has changed the keys, when a wake-up is sent: a script notices at the next ask, the module at once.
//!
//! `SCRIPT_CASES` says how many sequences of calls there are at least, `SCRIPT_SEED` from which seed on.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fairlock_testing::forms::{fill, form};
use fairlock_testing::{Dice, Message, Server, lua, setting};

use crate::sides::Side;

/// How many times as many sequences as were asked for there may be.
const MOST: u64 = 5;
/// Calls on one lock, which is new then.
const CALLS: usize = 30;
/// Milliseconds by which times may differ from server to server. To it comes what the calls take.
const CLOCK: u128 = 1500;
/// Longer than any short lease or patience that calls ask for, and than the turn of a waiter with a short patience.
const NAP: Duration = Duration::from_millis(300);
/// A silent head makes the module wake those behind it after a tenth of its turn of 5 s. Naps count, too.
const QUIET: Duration = Duration::from_millis(450);
/// In calls that take less than this no turn ends, which a server that is kept from listening prolongs and a script
/// does not.
const SLOW: Duration = Duration::from_secs(2);
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

/// One step of a sequence.
#[derive(Clone, Debug)]
pub enum Step {
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

#[test]
fn scripts_do_what_the_commands_do() {
    let cases = setting("SCRIPT_CASES").unwrap_or(300);
    let seed = setting("SCRIPT_SEED").unwrap_or(1);
    println!("{cases} sequences from seed {seed} on");
    let mut sides = [
        Side::new(Server::start(), false),
        Side::new(Server::without_module(&[]), true).with_exponents(),
    ];
    let (mut heard, mut done) = (0, 0);
    // On a busy machine many take too long: then it goes on, until messages were compared in enough of them.
    while done < cases || (heard <= cases / 8 && done < MOST * cases) {
        heard += compare(&mut sides, seed + done);
        done += 1;
    }
    println!("messages were compared in {heard} of {done} sequences");
    assert!(heard > cases / 8, "{heard} of {done}");
}

/// One sequence; whether its messages could be compared.
fn compare(sides: &mut [Side; 2], case: u64) -> u64 {
    let mut dice = Dice::new(case, 0);
    let keys = lua::keys(&dice.pick(&LOCKS).replace('?', &case.to_string()));
    for side in &mut *sides {
        side.begin();
    }
    let (begin, mut took) = (Instant::now(), Duration::ZERO);
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
        if took >= SLOW {
            return 0;
        }
        told.push(format!(
            "{step:?}\n  command {command:?}\n  script  {script:?}"
        ));
        assert!(
            command.is_like(&script, CLOCK + 2 * took.as_millis()),
            "seed {case}, {}:\n{}",
            keys[0],
            told.join("\n")
        );
    }
    let [command, script] = sides.each_ref().map(|side| side.heard(&keys));
    if begin.elapsed() >= QUIET {
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
    match dice.usize(..80) {
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

pub fn ask(words: &str) -> Vec<String> {
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

/// Commands. The key comes later.
const FORMS: [&str; 4] = [
    "15 ACQUIRE {owner} {way} [LEASE {long}] [PATIENCE {long}] [{once}]",
    "9 RELEASE {owner} [ALL] [TOKEN {token}]",
    "3 RENEW {owner} [LEASE {long}]",
    "3 CANCEL {owner}",
];

const TIMES: [&str; 4] = ["10000", "600000", "100000000", "4503599627370496"];
const TOKENS: [&str; 4] = ["{token}", "{token}", "1", "9223372036854775807"];

fn stand_in(dice: &mut Dice, word: &str) -> String {
    let is_wrong = dice.one_in(30);
    let choice: &[&str] = match word {
        "{owner}" => &OWNERS,
        "{way}" => &["ENQUEUE", "ENQUEUE", "enqueue", "NOWAIT"],
        "{once}" => &["ONCE", "Once"],
        _ if is_wrong => &WRONG,
        "{token}" => &TOKENS,
        _ => &TIMES,
    };
    dice.pick(choice).to_owned()
}

fn call(dice: &mut Dice) -> Vec<String> {
    let form = form(dice, &FORMS);
    let mut words: Vec<String> = fill(dice, form, stand_in);
    // Wrong in all ways.
    match dice.usize(..150) {
        // Without a way to wait the command would block.
        0 if words.len() != 3 => drop(words.pop()),
        1 => words.push("MORE".to_owned()),
        2 => words[1].clear(),
        3 => words.push(words[words.len() - 1].clone()),
        4 | 5 => words[1] = "o".repeat(dice.pick(&[256, 257])),
        _ => (),
    }
    words
}
