//! One call of a script: its keys and arguments, and what it becomes.

use crate::config::LONGEST;
use crate::keyspace::Names;
use crate::keyspace::stored::number as whole;
use crate::lock::{Millis, Now, Refusal, Rules, State};
use crate::server::{Ctx, Str};

use super::leave::Leave;
use super::table::{Form, Script};
use super::try_lock::Try;
use super::unlock::Unlocking;

/// The keys and arguments that a script is called with.
#[derive(Debug)]
pub struct Call<'c> {
    /// The context of the call.
    pub ctx: &'c Ctx,
    /// KEYS.
    pub keys: Vec<Str>,
    /// ARGV.
    pub arguments: Vec<&'c [u8]>,
}

/// The server's own error where memory is full.
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// What a script replies.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nil.
    Nil,
    /// An integer.
    Number(i64),
    /// An array of integers.
    Numbers(Vec<i64>),
    /// An error.
    Error(&'static str),
}

/// What a call becomes.
#[derive(Debug)]
pub enum Native<'c> {
    /// It is through: the lock's queue is none of its affair.
    Done(Reply),
    /// A step of the rules.
    Step(Step<'c>),
}

/// A call that is a step of the rules, on the lock of these names.
#[derive(Debug)]
pub struct Step<'c> {
    /// The lock's key.
    pub lock: Str,
    kind: Kind<'c>,
}

#[derive(Debug)]
enum Kind<'c> {
    Try(Try<'c>),
    Unlock(Unlocking<'c>),
    Leave(&'c [u8]),
}

/// How a script sends wake-ups.
#[derive(Debug)]
pub struct WakeUp {
    /// PUBLISH or SPUBLISH.
    pub command: &'static std::ffi::CStr,
    /// The channel, but for the colon and the owner at its end.
    pub channel: Str,
    /// The message.
    pub message: Str,
}

/// The native form does not know this case: the script itself is to be run. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftToLua;

impl<'c> Call<'c> {
    /// KEYS, counted from 0.
    pub(super) fn key(&self, index: usize) -> Result<&Str, LeftToLua> {
        self.keys.get(index).ok_or(LeftToLua)
    }

    /// ARGV, counted from 0.
    pub(super) fn argument(&self, index: usize) -> Result<&'c [u8], LeftToLua> {
        self.arguments.get(index).copied().ok_or(LeftToLua)
    }

    /// An argument that is a whole number of milliseconds, not below 0.
    pub(super) fn millis(&self, index: usize) -> Result<Millis, LeftToLua> {
        let number = whole(self.argument(index)?).ok_or(LeftToLua)?;
        Millis::try_from(number).map_err(|_| LeftToLua)
    }

    /// An argument that is a time to live. Beyond the longest, the script's own error is wanted.
    pub(super) fn duration(&self, index: usize) -> Result<Millis, LeftToLua> {
        let longest = LONGEST.cast_unsigned();
        let duration = self.millis(index)?;
        (1..longest)
            .contains(&duration)
            .then_some(duration)
            .ok_or(LeftToLua)
    }

    /// The lock whose queue and scores these keys are. Keys that do not belong together (a client
    /// that maps names, before 3.52.0) make no lock that the rules know.
    fn lock(&self, lock: usize, queue: usize, scores: usize) -> Result<Str, LeftToLua> {
        let key = self.key(lock)?;
        self.fits(key, queue, scores)
    }

    fn fits(&self, lock: &Str, queue: usize, scores: usize) -> Result<Str, LeftToLua> {
        let names = Names::of(lock.as_slice());
        let fits = self.key(queue)?.as_slice() == names.queue.as_slice()
            && self.key(scores)?.as_slice() == names.deadlines.as_slice();
        fits.then(|| crate::server::share(lock)).ok_or(LeftToLua)
    }
}

/// What a script becomes.
///
/// # Errors
/// [`LeftToLua`] if the script itself is to be run.
pub fn native<'c>(script: &Script, call: &Call<'c>) -> Result<Native<'c>, LeftToLua> {
    let fits = match script.keys {
        Some(keys) => call.keys.len() == keys && call.arguments.len() == script.arguments,
        None => !call.keys.is_empty() && call.arguments.len() == call.keys.len() + 1,
    };
    if !fits {
        return Err(LeftToLua);
    }
    let (lock, kind) = match &script.form {
        Form::TryLock(form) => (call.lock(0, 1, 2)?, Kind::Try(form.read(call)?)),
        Form::Unlock(form) => {
            let lock = call.lock(0, 1, 2)?;
            let unlocking = form.read(call)?;
            if let Some(reply) = unlocking.kept_reply() {
                return Ok(Native::Done(Reply::Number(reply)));
            }
            (lock, Kind::Unlock(unlocking))
        }
        Form::Leave(Leave) => {
            let lock = Leave::lock(call)?;
            (call.fits(&lock, 0, 1)?, Kind::Leave(Leave::read(call)?))
        }
        Form::Renew(form) => return form.run(call).map(Native::Done),
    };
    Ok(Native::Step(Step { lock, kind }))
}

impl Step<'_> {
    /// How the head is woken, if the lock becomes free.
    #[must_use]
    pub fn wake_up(&self) -> Option<&WakeUp> {
        match &self.kind {
            Kind::Unlock(unlocking) => Some(&unlocking.wake_up),
            Kind::Try(_) | Kind::Leave(_) => None,
        }
    }

    /// Takes the step.
    ///
    /// # Errors
    /// [`LeftToLua`] if the script itself is to be run.
    pub fn decide<S: State>(
        &self,
        state: &mut S,
        rules: &Rules,
        now: Now,
    ) -> Result<Reply, LeftToLua> {
        match &self.kind {
            Kind::Try(asked) => asked.decide(state, rules, now),
            Kind::Unlock(unlocking) => unlocking.decide(state, rules, now),
            Kind::Leave(owner) => {
                crate::lock::scripts::leave(state, owner, rules, now);
                Ok(Reply::Nil)
            }
        }
    }

    /// Does what comes after the step.
    pub fn finish(&mut self, reply: &Reply) {
        if let (Kind::Unlock(unlocking), Reply::Number(reply)) = (&mut self.kind, reply) {
            unlocking.keep(*reply);
        }
    }
}

/// What a refusal becomes. A script raises its own errors, by Lua.
pub(super) fn refused(refusal: Refusal) -> Result<Reply, LeftToLua> {
    match refusal {
        Refusal::MemoryFull => Ok(Reply::Error(OUT_OF_MEMORY)),
        _ => Err(LeftToLua),
    }
}
