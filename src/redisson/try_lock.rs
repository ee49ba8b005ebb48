//! The scripts that take the lock: with a queue behind it, and without.

use crate::lock::scripts::{ScriptWait, Sleep, Tried, TryLock};
use crate::lock::{Holds, State, Step};

use super::call::{LeftToLua, Reply, ScriptCall, refused};

/// One such script. Keys: lock, queue, scores. Arguments: lease, owner, and others.
#[derive(Clone, Copy, Debug)]
pub struct TryLockForm {
    /// Whether a holder that asks again is refused. Servers word that error differently, so it is left to Lua.
    pub refuses_holder: bool,
    /// What it replies to an owner that has to wait; `None` if it does not join the queue.
    pub sleep: Option<Sleep>,
}

/// A call of such a script.
#[derive(Debug)]
pub struct Try<'c> {
    request: TryLock<'c>,
    refuses_holder: bool,
}

impl TryLockForm {
    /// Which argument is the owner.
    pub const OWNER: usize = 1;

    /// Reads a call.
    pub fn read<'c>(self, call: &ScriptCall<'c>) -> Result<Try<'c>, LeftToLua> {
        // Behind the wait, if it waits.
        let client = call.millis(if self.sleep.is_some() { 3 } else { 2 })?;
        if self.sleep.is_none() && call.arguments.len() > 3 {
            // The time that the script subtracts from scores: not used here, but it must be a number.
            call.millis(3)?;
        }
        let wait = self.sleep.map(|sleep| {
            let patience = match sleep {
                // The oldest form passes the instant at which the patience ends, by the client's clock.
                Sleep::BehindHead => call.millis(2)?.checked_sub(client).ok_or(LeftToLua)?,
                _ => call.millis(2)?,
            };
            Ok(ScriptWait { patience, sleep })
        });
        let request = TryLock {
            owner: call.argument(Self::OWNER)?,
            lease: call.duration(0)?,
            client,
            wait: wait.transpose()?,
            memory_is_full: call.ctx.flags().out_of_memory(),
        };
        Ok(Try {
            request,
            refuses_holder: self.refuses_holder,
        })
    }
}

impl Try<'_> {
    /// Takes the step.
    pub fn decide<S: State>(&self, step: &mut Step<'_, S>) -> Result<Reply, LeftToLua> {
        if self.refuses_holder && step.state.holds(self.request.owner) != Holds::None {
            return Err(LeftToLua);
        }
        match step.try_lock(&self.request) {
            Ok(Tried::Acquired) => Ok(Reply::Nil),
            Ok(Tried::Refused) => Ok(Reply::Number(1)),
            Ok(Tried::Waits(sleep)) => Ok(Reply::Number(sleep)),
            Err(refusal) => refused(refusal),
        }
    }
}
