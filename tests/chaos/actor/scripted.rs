//! Uses the lock by Redisson's own scripts, which run as Lua or natively, as the server is
//! configured at the moment.

use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use fairlock_testing::needs_only_rust;
use fairlock_testing::redisson::harvest::SCRIPTS;
use fairlock_testing::redisson::{self, keys};
use fairlock_testing::resp::Reply;

use super::polling::{self, listen, quiet, script_acquired};
use super::{Actor, Fate, LEASE, Over, SCRIPTED, refused, strs};
use crate::history::{Answer, Request, Way};
use crate::world::lock_name;

/// Redisson's fairLockWaitTimeout, milliseconds.
const WAIT: u64 = 300_000;
const LATCH_TTL: &str = "1000";

/// Fetches the scripts, which takes longer than a round may wait.
pub fn fetch_scripts() {
    if !needs_only_rust() {
        LazyLock::force(&SCRIPTS);
    }
}

/// One attempt; by the command where the scripts are not to be had.
pub fn run(actor: &mut Actor) -> Result<(), Over> {
    if needs_only_rust() {
        return polling::run(actor);
    }
    let lock = actor.begin(SCRIPTED);
    let (fate, lease) = actor.fate();
    acquire(actor, lock, lease)?;
    let mut ms = actor.dice.u64(..actor.world.load.hold);
    if fate == Fate::Overstay {
        ms += lease * 2;
    }
    thread::sleep(Duration::from_millis(ms));
    if fate != Fate::Die {
        unlock(actor, lock)?;
    }
    Ok(())
}

/// The words of a script's call by the actor.
fn call(actor: &Actor, role: &str, lock: usize, latch: &str, lease: u64) -> Vec<String> {
    let now = actor.world.clock().unsigned_abs();
    let names = (&lock_name(lock)[..], &actor.name[..]);
    redisson::call(role, names, latch, [lease, WAIT, now])
}

fn acquire(actor: &mut Actor, lock: usize, lease: u64) -> Result<(), Over> {
    let request = actor.request(lock, Way::Script, lease, false);
    let mut retry_after = Duration::ZERO;
    loop {
        listen(actor, lock, retry_after)?;
        retry_after = Duration::from_millis(500);
        let words = call(actor, "lock", lock, "", lease);
        match actor.call(lock, request, &strs(&words), script_acquired)? {
            Answer::Granted(_) => {
                quiet(actor, lock);
                return Ok(());
            }
            Answer::Lost | Answer::Refused(_) => retry_after = Duration::ZERO,
            _ => (),
        }
    }
}

/// Until no hold is left: asking again after a lost reply may have added one.
fn unlock(actor: &mut Actor, lock: usize) -> Result<(), Over> {
    loop {
        let latch = format!("{:016x}", actor.dice.u64(..u64::MAX));
        let mut words = call(actor, "unlock", lock, &latch, LEASE);
        if let Some(last) = words.last_mut() {
            LATCH_TTL.clone_into(last);
        }
        let request = Request::Release { token: None };
        let answer = actor.call(lock, request, &strs(&words), unlocked)?;
        if let Ok(wire) = actor.wire() {
            // As Redisson does; if it cannot, the latch expires.
            let [.., latch] = keys(&lock_name(lock), &latch);
            let _ = wire.ask(&["DEL", &latch]);
        }
        match answer {
            Answer::Left(1..) | Answer::Lost | Answer::Refused(_) => (),
            _ => return Ok(()),
        }
    }
}

/// 1: released; 0: still held; nil: not the holder.
fn unlocked(reply: Reply) -> Answer {
    match reply {
        Reply::Int(1) => Answer::Left(0),
        Reply::Int(_) => Answer::Left(1),
        Reply::Nil => Answer::NotHeld,
        other => refused(other),
    }
}
