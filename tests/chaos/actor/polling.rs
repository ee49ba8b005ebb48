//! Joins the queue, and asks again when it is woken or told to.

use std::time::Duration;

use fairlock_testing::resp::Reply;

use super::blocking::hold;
use super::{Actor, Over, acquired, done, strs};
use crate::history::{Answer, Request, Way};
use crate::wire::Gone;
use crate::world::{LOCKS, key, lock_name};

/// Milliseconds.
const PATIENCE: &str = "6000";

/// One attempt.
pub fn run(actor: &mut Actor) -> Result<(), Over> {
    let lock = actor.begin(LOCKS);
    let (fate, lease) = actor.fate();
    if let Some(token) = acquire(actor, lock, lease)? {
        hold(actor, lock, token, lease, fate, false)?;
    }
    Ok(())
}

fn acquire(actor: &mut Actor, lock: usize, lease: u64) -> Result<Option<i64>, Over> {
    let request = actor.request(lock, Way::Polling, lease, true);
    let (lock_name, name, lease) = (lock_name(lock), actor.name.clone(), lease.to_string());
    let asking = actor.asking(lock);
    let mut words = strs(&asking);
    words.extend(["ENQUEUE", "LEASE", &lease, "PATIENCE", PATIENCE, "ONCE"]);
    let mut retry_after = Duration::ZERO;
    loop {
        listen(actor, lock, retry_after)?;
        retry_after = Duration::from_secs(1);
        match actor.call(lock, request, &words, acquired)? {
            Answer::Granted(token) => {
                quiet(actor, lock);
                return Ok(token);
            }
            // Gives up, with a word or without.
            Answer::NotNow if actor.dice.one_in(60) => {
                if actor.dice.one_in(2) {
                    let words = ["FAIRLOCK.CANCEL", &lock_name, &name];
                    actor.call(
                        lock,
                        Request::Cancel {
                            owner: actor.number,
                        },
                        &words,
                        done,
                    )?;
                }
                quiet(actor, lock);
                return Ok(None);
            }
            Answer::Lost | Answer::Refused(_) => retry_after = Duration::ZERO,
            _ => (),
        }
    }
}

/// Waits for a wake-up; on a new connection it only subscribes, and has to ask first.
pub fn listen(actor: &mut Actor, lock: usize, at_most: Duration) -> Result<(), Over> {
    let channel = format!("{}:{}", key("_channel", lock), actor.name);
    loop {
        let is_new = actor.wire.is_none() || at_most.is_zero();
        let wire = actor.wire()?;
        let heard = if is_new {
            wire.subscribe("SUBSCRIBE", &channel)
        } else {
            wire.wake_up(at_most)
        };
        match heard {
            Ok(()) => return Ok(()),
            Err(Gone) => actor.wire = None,
        }
    }
}

/// Subscribes no longer.
pub fn quiet(actor: &mut Actor, lock: usize) {
    let channel = format!("{}:{}", key("_channel", lock), actor.name);
    if let Some(wire) = &mut actor.wire
        && wire.subscribe("UNSUBSCRIBE", &channel) == Err(Gone)
    {
        actor.wire = None;
    }
}

/// The reply to a script that asks for a lock: nil once it is held, else when to ask again.
pub fn script_acquired(reply: Reply) -> Answer {
    match reply {
        Reply::Nil => Answer::Granted(None),
        Reply::Int(_) => Answer::NotNow,
        other => super::refused(other),
    }
}
