//! How many instructions of the server a step takes, and in which of its functions: counted by
//! callgrind, so that two runs agree to a tenth of a percent however busy the machine is.
//!
//! - here: uncontended pairs;
//! - [`hand_off`]: a lock that many clients want;
//! - [`callgrind`]: a server that is counted.

mod callgrind;
mod hand_off;

use std::time::Duration;

use anyhow::{Result, bail};

use crate::crowd::Crowd;
use crate::pairs::{Manner, pairs, reader};
use crate::report::show;
use crate::server::Kind;
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

/// Counts, and prints a table of totals, one of where fairlock's go, and one of hand-offs.
pub fn run() -> Result<()> {
    let mut rows = Vec::new();
    let mut fairlock = Counts::default();
    let others = [
        (
            "Redisson's scripts, interception off",
            Manner::Redisson,
            Kind::Module,
        ),
        (
            "ACQUIRE SHARED NOWAIT, RELEASE, beside another reader",
            Manner::Shared,
            Kind::Module,
        ),
    ];
    for (name, manner, kind) in CONTESTANTS.into_iter().chain(others) {
        eprintln!("{name}");
        let mut callgrind = Callgrind::start(kind)?;
        let server = &mut callgrind.server;
        if manner == Manner::Shared {
            let _: i64 = server.run(&reader("another"))?;
        }
        let crowd = Crowd::connect(server.address(), [pairs(manner, 1)].into_iter())?;
        let counts = count(callgrind, crowd, TIMES)?;
        rows.push((name, counts.total()));
        if manner == Manner::Fairlock {
            fairlock = counts;
        }
    }
    let hand_offs = hand_off::rows()?;
    println!("| pair | instructions |\n|---|---|");
    for (name, instructions) in rows {
        println!("| {name} | {} |", show(instructions));
    }
    println!("\n| of ACQUIRE and RELEASE | instructions | functions |\n|---|---|---|");
    for (what, functions) in AREAS {
        let instructions = show(fairlock.area(functions));
        println!("| {what} | {instructions} | `{functions}` |");
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
