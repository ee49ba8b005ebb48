//! Blocks until it holds the lock, some with WAIT, some with a session.

use std::thread;
use std::time::Duration;

use super::{Actor, Fate, Over, acquired, done, strs};
use crate::history::{Answer, Request, Way};
use crate::world::{LOCKS, lock_name};

/// One attempt.
pub fn run(actor: &mut Actor) -> Result<(), Over> {
    let lock = actor.begin(LOCKS);
    let (fate, lease) = actor.fate();
    let session = actor.dice.one_in(4);
    let wait = actor.dice.one_in(4).then(|| 1 + actor.dice.u64(..300));
    if let Some(token) = acquire(actor, lock, lease, wait, session)? {
        hold(actor, lock, token, lease, fate, session)?;
    }
    Ok(())
}

fn acquire(
    actor: &mut Actor,
    lock: usize,
    lease: u64,
    wait: Option<u64>,
    session: bool,
) -> Result<Option<i64>, Over> {
    let mut request = Request::Acquire {
        way: Way::Blocked,
        lease: lease * 1000,
        session,
        once: false,
        wait: wait.map(|ms| ms * 1000),
        limit: actor.limits[lock],
    };
    let asking = actor.asking(lock);
    let (lease, wait) = (lease.to_string(), wait.map(|ms| ms.to_string()));
    let mut words: Vec<&str> = asking.iter().map(String::as_str).collect();
    words.extend(["LEASE", &lease]);
    if let Some(wait) = &wait {
        words.extend(["WAIT", wait]);
    }
    if session {
        words.push("SESSION");
    }
    loop {
        match actor.call(lock, request, &words, acquired)? {
            Answer::Granted(token) => return Ok(token),
            Answer::Lost if actor.dice.one_in(8) => return Ok(None),
            Answer::Lost | Answer::Refused(_) => (),
            _ => return Ok(None),
        }
        // What was lost may have been done.
        if let Request::Acquire { once, .. } = &mut request
            && !*once
        {
            *once = true;
            words.push("ONCE");
        }
    }
}

/// Holds the lock for a while, asks again, renews, and ends as fate has it.
pub fn hold(
    actor: &mut Actor,
    lock: usize,
    token: i64,
    lease: u64,
    fate: Fate,
    session: bool,
) -> Result<(), Over> {
    let mut ms = actor.holding_time(lock);
    if fate == Fate::Overstay {
        ms += lease * 2;
    }
    thread::sleep(Duration::from_millis(ms));
    if fate == Fate::Die {
        // A session ends with its connection, any other lock with its lease.
        if session || actor.dice.one_in(2) {
            actor.close(lock);
        }
        return Ok(());
    }
    // A client that asks again may have lost the lock in between, and have it anew by another token.
    let again = fate == Fate::Release && actor.dice.one_in(8);
    let newer = if again {
        more(actor, lock, lease)?
    } else {
        None
    };
    actor.release(lock, newer.or(Some(token)))
}

/// One more hold, and its token, or a fresh lease.
fn more(actor: &mut Actor, lock: usize, lease: u64) -> Result<Option<i64>, Over> {
    let (lock_name, name, ms) = (lock_name(lock), actor.name.clone(), lease.to_string());
    if actor.dice.one_in(2) {
        let words = ["FAIRLOCK.RENEW", &lock_name, &name, "LEASE", &ms];
        actor.call(
            lock,
            Request::Renew {
                lease: lease * 1000,
            },
            &words,
            done,
        )?;
    } else {
        let asking = actor.asking(lock);
        let mut words = strs(&asking);
        words.extend(["LEASE", &ms, "NOWAIT"]);
        let request = actor.request(lock, Way::Trying, lease, false);
        if let Answer::Granted(token) = actor.call(lock, request, &words, acquired)? {
            return Ok(token);
        }
    }
    Ok(None)
}
