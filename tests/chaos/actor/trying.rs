//! Tries once and never waits: NOWAIT; and takes others out of the queue.

use super::blocking::hold;
use super::{Actor, Over, acquired, done, strs};
use crate::history::{Answer, Request, Way};
use crate::world::{CLIENTS, LOCKS, lock_name, owner};

/// One attempt.
pub fn run(actor: &mut Actor) -> Result<(), Over> {
    let lock = actor.begin(LOCKS);
    if actor.dice.one_in(20) {
        return cancel(actor, lock);
    }
    let (fate, lease) = actor.fate();
    let request = actor.request(lock, Way::Trying, lease, true);
    let (asking, ms) = (actor.asking(lock), lease.to_string());
    let mut words = strs(&asking);
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
