//! Uses the lock by Redisson's own scripts, which run as Lua or natively, as the server is
//! configured at the moment.

use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use fairlock_testing::needs_only_rust;
use fairlock_testing::redisson::harvest::{SCRIPTS, script};
use fairlock_testing::resp::Reply;

use super::polling::{self, listen, quiet, script_acquired};
use super::{Actor, Fate, LEASE, Over, SCRIPTED, refused};
use crate::history::{Answer, Request, Way};
use crate::world::{key, lock_name};

/// Redisson's fairLockWaitTimeout, milliseconds.
const WAIT: &str = "300000";
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
    let lock = actor.begin(SCRIPTED.min(actor.world.locks));
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

fn acquire(actor: &mut Actor, lock: usize, lease: u64) -> Result<(), Over> {
    let request = actor.request(lock, Way::Script, lease, false);
    let text = String::from_utf8_lossy(&script("lock").text).into_owned();
    let (name, queue, deadlines) = (lock_name(lock), key("queue", lock), key("timeout", lock));
    let (owner, lease) = (actor.name.clone(), lease.to_string());
    let mut retry_after = Duration::ZERO;
    loop {
        listen(actor, lock, retry_after)?;
        retry_after = Duration::from_millis(500);
        let now = actor.world.clock().to_string();
        let words = [
            "EVAL", &text, "3", &name, &queue, &deadlines, &lease, &owner, WAIT, &now,
        ];
        match actor.call(lock, request, &words, script_acquired)? {
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
    let text = String::from_utf8_lossy(&script("unlock").text).into_owned();
    let (name, queue, deadlines) = (lock_name(lock), key("queue", lock), key("timeout", lock));
    let (channel, owner, lease) = (key("_channel", lock), actor.name.clone(), LEASE.to_string());
    loop {
        let latch = format!(
            "redisson_unlock_latch:{{{name}}}:{:016x}",
            actor.dice.u64(..u64::MAX)
        );
        let now = actor.world.clock().to_string();
        let words = [
            "EVAL", &text, "5", &name, &queue, &deadlines, &channel, &latch, "0", &lease, &owner,
            &now, "PUBLISH", LATCH_TTL,
        ];
        let request = Request::Release { token: None };
        let answer = actor.call(lock, request, &words, unlocked)?;
        if let Ok(wire) = actor.wire() {
            // As Redisson does; if it cannot, the latch expires.
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
