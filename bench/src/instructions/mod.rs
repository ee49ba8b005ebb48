//! How many instructions of the server a step takes, and in which of its functions: counted by
//! callgrind, so that two runs agree to a tenth of a percent however busy the machine is.
//!
//! - here: uncontended pairs, and other clients' traffic;
//! - [`hand_off`]: a lock that many clients want;
//! - [`callgrind`]: a server that is counted.

mod callgrind;
mod hand_off;

use std::time::Duration;

use anyhow::{Result, bail};

use crate::crowd::{Crowd, encode};
use crate::pairs::{Answer, Batches, Manner, pairs};
use crate::report::show;
use crate::server::{Kind, Server};
use crate::uncontended::CONTESTANTS;

use callgrind::{Callgrind, Counts};

/// How often each is counted.
const TIMES: u64 = 8_000;
/// For how long at most.
const LONGEST: Duration = Duration::from_secs(20);

/// What takes the time of a pair: functions of the server, with all that they call.
const AREAS: [(&str, &str); 12] = [
    (
        "reading and parsing commands",
        "readQueryFromClient - processCommand",
    ),
    (
        "the server around a command",
        "processCommand - RedisModuleCommandDispatcher",
    ),
    (
        "the module, with all that it calls",
        "RedisModuleCommandDispatcher",
    ),
    ("... replicating", "RM_Replicate"),
    ("... opening keys", "RM_OpenKey"),
    ("... closing keys", "RM_CloseKey"),
    ("... key events", "RM_NotifyKeyspaceEvent"),
    ("... setting a field of the hash", "RM_HashSet"),
    ("... deleting the lock", "RM_DeleteKey"),
    ("... setting expiries", "RM_SetAbsExpire"),
    ("... making strings", "RM_CreateString"),
    ("... telling WATCH and caches", "RM_SignalModifiedKey"),
];

/// Counts, and prints a table of totals, one of where fairlock's go, and one of hand-offs: the rows whose names
/// contain `only`.
pub fn run(only: &str) -> Result<()> {
    let mut rows = Vec::new();
    let [mut exclusive, mut shared] = [Counts::default(), Counts::default()];
    let timed = CONTESTANTS.map(|(name, manner, kind)| (name, kind, Step::Pair(manner)));
    let redisson = Step::Pair(Manner::Redisson);
    let reader = "ACQUIRE SHARED NOWAIT, RELEASE, beside another reader";
    let others = [
        (
            "Redisson's scripts, interception off",
            Kind::Module,
            redisson,
        ),
        (reader, Kind::Module, Step::Shared),
        ("GET, SET without the module", Kind::Plain, Step::Traffic),
        ("GET, SET with the module", Kind::Module, Step::Traffic),
    ];
    for (name, kind, step) in timed.into_iter().chain(others) {
        if !name.contains(only) {
            continue;
        }
        eprintln!("{name}");
        let mut callgrind = Callgrind::start(kind)?;
        let crowd = steps(&mut callgrind.server, step)?;
        let counts = count(callgrind, crowd, TIMES)?;
        rows.push((name, counts.total()));
        match step {
            Step::Pair(Manner::Fairlock) => exclusive = counts,
            Step::Shared => shared = counts,
            _ => (),
        }
    }
    let hand_offs = hand_off::rows(only)?;
    println!("| pair | instructions |\n|---|---|");
    for (name, instructions) in rows {
        println!("| {name} | {} |", show(instructions));
    }
    println!("\n| of ACQUIRE and RELEASE | instructions | SHARED | functions |\n|---|---|---|---|");
    for (what, functions) in AREAS {
        let [exclusive, shared] = [&exclusive, &shared].map(|counts| show(counts.area(functions)));
        println!("| {what} | {exclusive} | {shared} | `{functions}` |");
    }
    let [two, few, many] = hand_off::CLIENTS;
    println!(
        "\n| a hand-off | {two} clients | {few} clients | {many} clients |\n|---|---|---|---|"
    );
    for (name, instructions) in hand_offs {
        let [two, few, many] = instructions.map(show);
        println!("| {name} | {two} | {few} | {many} |");
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Pair(Manner),
    Shared,
    Traffic,
}

/// A connection that does nothing but such steps.
fn steps(server: &mut Server, step: Step) -> Result<Crowd> {
    if step == Step::Shared {
        let _: i64 = server.run(&reader(b"another"))?;
    }
    let steps = match step {
        Step::Pair(manner) => pairs(manner, 1),
        Step::Shared => Batches::new(&[Answer::Positive, Answer::Is(0)], |out, index| {
            let owner = format!("8d2c4a43-5f0e-4c7b-9a86-3f2f6f2a0001:{index}");
            encode(out, &reader(owner.as_bytes()));
            encode(out, &[b"FAIRLOCK.RELEASE", LOCK, owner.as_bytes()]);
        }),
        Step::Traffic => Batches::new(&[Answer::Text; 2], |out, index| {
            let key = format!("key:{index}");
            encode(out, &[b"SET", key.as_bytes(), b"0123456789"]);
            encode(out, &[b"GET", key.as_bytes()]);
        }),
    };
    Crowd::connect(server.address(), [steps].into_iter())
}

/// Counts so many steps of a crowd, or those of some time. What is under way at the beginning makes up for what is at the
/// end.
fn count(callgrind: Callgrind, mut crowd: Crowd, times: u64) -> Result<Counts> {
    let mut go_on = |times: u64| {
        let before = crowd.done();
        crowd.run_while(LONGEST, |crowd| crowd.done() < before + times)?;
        match crowd.done() - before {
            0 => bail!("no step in {LONGEST:?}"),
            steps => Ok(steps),
        }
    };
    // One-time setup happens before counting.
    go_on(times / 4)?;
    callgrind.count(true)?;
    let steps = go_on(times)?;
    callgrind.count(false)?;
    drop(crowd);
    callgrind.finish(usize::try_from(steps)?)
}

const LOCK: &[u8] = b"lock";

/// The words by which an owner becomes a reader for ten minutes.
fn reader(owner: &[u8]) -> [&[u8]; 7] {
    let [acquire, shared, nowait] = [&b"FAIRLOCK.ACQUIRE"[..], b"SHARED", b"NOWAIT"];
    [acquire, LOCK, owner, shared, nowait, b"LEASE", b"600000"]
}
