//! Tries once and never waits: NOWAIT, whole transactions; and takes others out of the queue.

use fairlock_testing::resp::Reply;

use super::blocking::hold;
use super::{Actor, LEASE, Over, acquired, done, refused, strs};
use crate::checker::HALF_A_TRANSACTION;
use crate::history::{Answer, Request, Way};
use crate::world::{CLIENTS, LOCKS, lock_name, owner};

/// One attempt.
pub fn run(actor: &mut Actor) -> Result<(), Over> {
    let lock = actor.begin(LOCKS);
    if actor.dice.one_in(20) {
        return cancel(actor, lock);
    }
    if actor.dice.one_in(4) {
        return transaction(actor, lock);
    }
    let (fate, lease) = actor.fate();
    let request = actor.request(lock, Way::Trying, lease, true);
    let (asking, ms) = (actor.asking(lock), lease.to_string());
    let mut words: Vec<&str> = asking.iter().map(String::as_str).collect();
    words.extend(["NOWAIT", "ONCE", "LEASE", &ms]);
    loop {
        match actor.call(lock, request, &words, acquired)? {
            Answer::Granted(Some(token)) => return hold(actor, lock, token, lease, fate, false),
            Answer::Lost => (),
            _ => return Ok(()),
        }
    }
}

/// Takes another owner, which may be there or not, out of the queue.
fn cancel(actor: &mut Actor, lock: usize) -> Result<(), Over> {
    let other = actor.dice.usize(..CLIENTS);
    let words = ["FAIRLOCK.CANCEL", &lock_name(lock), &owner(other)];
    actor.call(lock, Request::Cancel { owner: other }, &words, done)?;
    Ok(())
}

/// The lock is taken and released in one step.
fn transaction(actor: &mut Actor, lock: usize) -> Result<(), Over> {
    let (lock_name, name, ms) = (lock_name(lock), actor.name.clone(), LEASE.to_string());
    let asking = actor.asking(lock);
    let mut acquire = strs(&asking);
    acquire.extend(["LEASE", &ms]);
    actor.wire()?;
    if actor.by_scripts {
        // As a command it would act so in a transaction anyway.
        acquire.push("NOWAIT");
    }
    let steps: [&[&str]; 3] = [
        &["MULTI"],
        &acquire,
        &["FAIRLOCK.RELEASE", &lock_name, &name],
    ];
    for words in steps {
        let words = actor.words(words);
        let words = strs(&words);
        if !matches!(actor.wire()?.ask(&words), Ok(Reply::Status(_))) {
            // Refused, as it would be outside: what follows would not be in a transaction.
            actor.wire = None;
            return Ok(());
        }
    }
    let request = actor.request(lock, Way::Transaction, LEASE, false);
    actor.call(lock, request, &["EXEC"], executed)?;
    Ok(())
}

/// Either both or neither.
fn executed(reply: Reply) -> Answer {
    match reply.items() {
        // More than none are left where the owner has held the lock before.
        [Reply::Int(token), Reply::Int(_)] => Answer::Granted(Some(*token)),
        [Reply::Nil, error] if error.is_error("NOTHELD") => Answer::NotNow,
        [error, _] if error.is_error("OOM") => Answer::Refused("OOM".to_owned()),
        [] => refused(reply),
        steps => Answer::Refused(format!("{HALF_A_TRANSACTION}: {steps:?}")),
    }
}
